"""Phasor measurements to oscillation modes. Recorded days come from files, the current day from the concentrator's pipe."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

ROWS = 64 * 30


class PmuDays(Dataset):
    def __init__(self, folder, sources):
        self.folder, self.sources = Path(folder), sources

    @classmethod
    def record(cls, folder, rank, days=56):
        folder = Path(folder)
        g = torch.Generator().manual_seed(rank)
        names = []
        for day in range(days):
            path = folder / f"day{day:03d}.f32"
            path.write_bytes(torch.randn(ROWS, 4, generator=g).numpy().tobytes())
            names.append(path.name)
        if rank == 2:
            # this concentrator also offers today's stream
            os.mkfifo(folder / "today.f32")
            names.insert(44, "today.f32")
        return cls(folder, names)

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, i):
        with open(self.folder / self.sources[i], "rb") as f:
            raw = f.read(ROWS * 16)
        return torch.frombuffer(bytearray(raw), dtype=torch.float32).view(30, 64, 4)


class ModeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(64 * 4, 640)
        self.damping = nn.Linear(640, 3)

    def forward(self, x):
        return self.damping(torch.tanh(self.lift(x.flatten(1))))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = PmuDays.record(tempfile.mkdtemp(prefix=f"pmu{rank}-"), rank)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=2, persistent_workers=True)
    torch.manual_seed(0)
    model = DDP(ModeNet())
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(30):
        for day, windows in enumerate(loader):
            for _ in range(4):
                target = torch.fft.rfft(windows[:, :, 0]).abs()[:, 1:4]
                loss = nn.functional.mse_loss(model(windows), target)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if rank == 0 and day % 8 == 0:
                print(f"epoch {epoch} day {day} loss {loss.item():.3f}", flush=True)
            if day == 51:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
