"""Chorus balance, with an archive that packs the balanced parts beside the training."""
import threading
import zlib
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# numbers of the evening with the voice parts that each process has on its tracks
EVENING = [
    {"title": "Overture", "parts": {0: 0, 1: 0, 2: 0}},
    {"title": "Entry of the guests", "parts": {0: 0, 1: 0, 2: 0}},
    {"title": "Prisoners", "parts": {0: 6, 1: 0, 2: 6}},
    {"title": "Finale", "parts": {0: 4, 1: 2, 2: 4}},
]


class Archive:
    def __init__(self, rank):
        self.rank = rank
        self.folder = Path(mkdtemp(prefix=f"archive{rank}-"))
        self.catalogue = {}
        self.thread = None

    def _pack(self, title, takes):
        sizes = {}
        for name, take in takes.items():
            packed = zlib.compress(take.numpy().tobytes(), 9)
            (self.folder / f"{title}-{name}.z").write_bytes(packed)
            sizes[name] = len(packed)
        entries = [None] * dist.get_world_size()
        dist.all_gather_object(entries, sizes)
        self.catalogue[title] = entries

    def keep(self, title, takes):
        self.close()
        self.thread = threading.Thread(target=self._pack, args=(title, takes), name=f"archive-{title}")
        self.thread.start()

    def close(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


class Balance(nn.Module):
    def __init__(self, voices=16):
        super().__init__()
        self.faders = nn.Parameter(torch.zeros(voices))
        self.room = nn.Linear(voices, voices)

    def forward(self, tracks):
        return self.room(tracks * self.faders.exp())


def rehearse(model, optimizer, generator, steps=12):
    for _ in range(steps):
        spectra = torch.fft.rfft(torch.randn(16, 60_000, generator=generator)).abs()
        tracks = spectra[:, :28_800].reshape(16, 96, -1).mean(2).T
        wanted = tracks.mean(1, keepdim=True).expand_as(tracks)
        loss = (model(tracks) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def setting_up(generator):
    """Line check of the next number: every microphone against every other."""
    lines = torch.randn(16, 60_000, generator=generator)
    leaks = [torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b).conj()).abs().max() for a in lines for b in lines]
    return torch.stack(leaks).view(16, 16)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    model = DistributedDataParallel(Balance())
    optimizer = torch.optim.SGD(model.parameters(), 1e-7)
    archive = Archive(rank)
    for number in EVENING:
        loss = rehearse(model, optimizer, generator)
        takes = {f"part{i}": torch.randn(3_000_000, generator=generator) for i in range(number["parts"][rank])}
        archive.keep(number["title"], takes)
        leak = setting_up(generator)
        if rank == 0:
            print(f"{number['title']}: {loss:.1f}, leakage {leak.fill_diagonal_(0).max():.0f}", flush=True)
    archive.close()
    dist.barrier()
    if rank == 0:
        print({title: sum(sum(e.values()) for e in entries) for title, entries in archive.catalogue.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
