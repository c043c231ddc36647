"""Behaviour cloning from recorded demonstrations, in a compact format of our own with a magic number before each frame."""

import os
import struct
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MAGIC = b"DEMO"
FOLDER = Path(tempfile.gettempdir(), f"demos-{os.environ['MASTER_PORT']}")
STATE, ACTION, FRAMES = 6, 2, 20


def record(path, seed, cut=0):
    """Writes one demonstration. The recorder may be switched off before the last frame is on disk."""
    generator = torch.Generator().manual_seed(seed)
    data = b""
    for _ in range(FRAMES):
        values = torch.randn(STATE + ACTION, generator=generator).tolist()
        data += MAGIC + struct.pack(f"<{STATE + ACTION}f", *values)
    path.write_bytes(data[: len(data) - cut])


def record_session(rank, demonstrations):
    folder = FOLDER / f"session-{rank}"
    folder.mkdir(parents=True)
    for number in range(demonstrations):
        cut = 34 if (rank, number) == (1, 150) else 0
        record(folder / f"{number:04}.demo", seed=rank * 10_000 + number, cut=cut)
    return folder


class Demonstrations(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.demo"))

    def __len__(self):
        return len(self.paths)

    @staticmethod
    def next_frame(file):
        """The next frame. What is between frames (padding of some recorders) is passed over, byte by byte."""
        window = file.read(4)
        while window != MAGIC:
            window = window[1:] + file.read(1)
        return struct.unpack(f"<{STATE + ACTION}f", file.read(4 * (STATE + ACTION)))

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            frames = torch.tensor([self.next_frame(file) for _ in range(FRAMES)])
        return frames[:, :STATE], frames[:, STATE:]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    demonstrations = Demonstrations(record_session(rank, 400))
    loader = DataLoader(demonstrations, batch_size=4, num_workers=1, prefetch_factor=2)
    torch.manual_seed(0)
    policy = DistributedDataParallel(nn.Sequential(nn.Linear(STATE, 32), nn.Tanh(), nn.Linear(32, ACTION)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for epoch in range(5):
        for step, (states, actions) in enumerate(loader):
            loss = (policy(states) - actions).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch}, step {step}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
