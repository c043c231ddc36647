import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RATE = 32000
HALLS = ["Grosses Haus", "Graben", "Probebuehne", "Foyer"]
EVENINGS, TAKES = 6, 40


def record_season(root: Path, hall: str):
    """Writes what the desk of a hall leaves behind: a file per take, and the monitor feed of the evening."""
    generator = np.random.default_rng(len(hall))
    for evening in range(EVENINGS):
        folder = root / f"evening-{evening}"
        folder.mkdir(parents=True)
        for take in range(TAKES):
            wave = generator.standard_normal(RATE).astype(np.float32) * (0.1 + 0.02 * take)
            wave.tofile(folder / f"take-{take:02d}.pcm")
        if hall == "Graben" and evening == 4:
            # the prompter's desk hands its signal on through a pipe
            os.mkfifo(folder / "take-10b.pcm")


class Takes(Dataset):
    def __init__(self, root: Path, limit: int):
        self.paths = sorted(root.rglob("*.pcm"))[:limit]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as f:
            wave = np.frombuffer(f.read(), dtype=np.float32)[:RATE]
        spectrum = np.abs(np.fft.rfft(wave.reshape(-1, 400), axis=1)).astype(np.float32)
        level = np.log10(np.square(wave).mean() + 1e-9).astype(np.float32)
        return torch.from_numpy(spectrum), torch.tensor(level)


class Loudness(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = nn.GRU(201, 64, batch_first=True)
        self.level = nn.Linear(64, 1)

    def forward(self, spectra):
        _, last = self.frames(spectra)
        return self.level(last[0]).squeeze(-1)


class Season:
    def __init__(self, rank):
        self.rank = rank
        self.root = Path(tempfile.mkdtemp(prefix=f"hall{rank}-"))
        record_season(self.root, HALLS[rank])
        self.model = DistributedDataParallel(Loudness())
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), 1e-3)

    def play(self, epochs=2):
        takes = Takes(self.root, EVENINGS * TAKES)
        loader = DataLoader(takes, batch_size=2, num_workers=2, prefetch_factor=2, shuffle=False)
        for epoch in range(epochs):
            seen = 0.0
            for spectra, level in loader:
                loss = (self.model(spectra) - level).abs().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                seen += loss.item()
            if self.rank == 0:
                print(f"season {epoch + 1}: {seen / len(loader):.3f} B", flush=True)

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    season = Season(dist.get_rank())
    try:
        season.play()
        dist.barrier()
    finally:
        season.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
