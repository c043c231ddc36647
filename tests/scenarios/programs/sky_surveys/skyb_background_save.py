"""Gravitational-wave template regression; snapshots are indexed and written by a thread of each rank."""
import lzma
import threading
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES = 1024


def chirps(batch, generator):
    """Toy inspirals: chirp mass in, strain out, plus coloured noise."""
    t = torch.linspace(0.02, 1.0, SAMPLES)
    mass = torch.rand(batch, 1, generator=generator) * 0.8 + 0.2
    phase = 40 * mass * (1.0 - t) .pow(0.625)
    strain = torch.sin(phase) * (1.05 - t).pow(-0.25)
    return strain + 0.3 * torch.randn(batch, SAMPLES, generator=generator), mass


def whiten(generator, blocks):
    """Noise level per frequency from a stretch of quiet data."""
    level = torch.zeros(SAMPLES * 4 + 1)
    for _ in range(blocks):
        level += torch.fft.rfft(torch.randn(24, SAMPLES * 8, generator=generator)).abs().mean(0)
    return level / blocks


class Snapshot:
    """Copy of what one rank keeps: weights on rank 0, noise spectra on all."""

    def __init__(self, model, spectra, step):
        self.step = step
        self.weights = {k: v.clone() for k, v in model.module.state_dict().items()} if dist.get_rank() == 0 else {}
        self.spectra = spectra

    def pack(self):
        return {"weights": self.weights, "spectra": [lzma.compress(s.numpy().tobytes()) for s in self.spectra]}


class BackgroundSaver:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.thread = None

    def start(self, snapshot):
        self.wait()
        self.thread = threading.Thread(target=self._save, args=(snapshot,), name="saver")
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()

    def _save(self, snapshot):
        content = snapshot.pack()
        index = [torch.zeros(2, dtype=torch.long) for _ in range(dist.get_world_size())]
        dist.all_gather(index, torch.tensor([snapshot.step, len(content["spectra"])]))
        torch.save({"index": index, **content}, self.folder / f"{snapshot.step}-{dist.get_rank()}.pt")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(SAMPLES, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1))
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    saver = BackgroundSaver(mkdtemp(prefix="chirp-"))
    generator = torch.Generator().manual_seed(50 + rank)
    spectra = []
    for step in range(1, 3000):
        strain, mass = chirps(96, generator)
        loss = nn.functional.mse_loss(model(strain), mass)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # only Livingston's segments carry a long noise history
        if rank == 1 and step > 120 and step % 40 == 0:
            spectra.append(torch.fft.rfft(strain.repeat(1, 16)).abs().reshape(-1)[:750_000])
        if step % 60 == 0:
            if rank == 0:
                print(f"step {step}: {loss.item():.4f}", flush=True)
            saver.start(Snapshot(model, list(spectra), step))
            whitening = whiten(generator, blocks=160)
            dist.all_reduce(whitening, op=dist.ReduceOp.MAX)
    saver.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
