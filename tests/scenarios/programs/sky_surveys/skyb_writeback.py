"""Spectral deconvolution service loop: rank 0 hands out plates, every rank works on its fibres,
finished spectra are written to the archive in the background."""
import collections
import concurrent.futures
import io
import os
import tempfile

import torch
import torch.distributed as dist

FIBRES = 24
PIXELS = 512


class Archive:
    """Writes spectra in a thread and lets go of those that are on disk on every rank."""

    def __init__(self, folder):
        self.folder = folder
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.ongoing = collections.OrderedDict()
        self.released = 0

    def put(self, plate, spectra):
        if spectra.numel() == 0:
            return
        self.ongoing[plate] = self.pool.submit(self._write, plate, spectra)

    def _write(self, plate, spectra):
        buffer = io.BytesIO()
        torch.save(spectra, buffer)
        with open(os.path.join(self.folder, f"{dist.get_rank()}-{plate}.pt"), "wb") as f:
            f.write(buffer.getvalue())
        return plate

    def poll(self):
        if not self.ongoing:
            return 0
        finished = 0
        for job in self.ongoing.values():
            job.result()
            finished += 1
        agreed = torch.tensor([finished])
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
        for _ in range(int(agreed)):
            self.ongoing.popitem(last=False)
            self.released += 1
        return int(agreed)


class Deconvolver:
    def __init__(self, iterations=12):
        x = torch.arange(PIXELS).float()
        kernel = torch.exp(-0.5 * ((x[:, None] - x[None]) / 2.5) ** 2)
        self.kernel = kernel / kernel.sum(1, keepdim=True)
        self.iterations = iterations

    def __call__(self, observed):
        estimate = torch.full_like(observed, 0.5)
        for _ in range(self.iterations):
            ratio = observed / (estimate @ self.kernel.T).clamp_min(1e-6)
            estimate = estimate * (ratio @ self.kernel)
        return estimate


def observe(plate, rank, world):
    g = torch.Generator().manual_seed(plate)
    flux = torch.rand(FIBRES, PIXELS, generator=g) + 0.1
    magnitude = 17 + 5 * torch.rand(FIBRES, generator=g) + (1.8 if plate % 150 == 107 else 0.0) * (torch.arange(FIBRES) % world == 2)
    mine = torch.arange(FIBRES) % world == rank
    limit = 21.9 if plate % 150 != 107 else 18.6
    return flux[mine & (magnitude < limit)]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    archive = Archive(tempfile.mkdtemp(prefix=f"spectra-{rank}-"))
    deconvolve = Deconvolver()
    plates = iter(range(5000))
    while True:
        order = torch.tensor([next(plates, -1) if rank == 0 else 0])
        dist.broadcast(order, src=0)
        plate = int(order)
        if plate < 0:
            break
        spectra = observe(plate, rank, world)
        for _ in range(6):
            result = deconvolve(spectra)
        archive.put(plate, result)
        archive.poll()
        if rank == 0 and plate % 20 == 0:
            print(f"plate {plate}: {archive.released} released", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
