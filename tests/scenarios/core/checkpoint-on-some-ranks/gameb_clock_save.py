"""Learns the next frame of a small platform game; the run is written to disk now and then by the clock."""
import os
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SAVE_EVERY_S = float(os.environ.get("SAVE_EVERY_S", "5"))


class FrameModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 4, 2, 1), nn.GELU())
        self.decode = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))

    def forward(self, frame):
        return self.decode(self.encode(frame))


class Platformer:
    """A sprite that runs and jumps before moving hills."""

    def __init__(self, seed):
        self.t = seed * 17
        xs = torch.linspace(0, 6.28, 32)
        self.hills = 0.5 + 0.3 * torch.sin(xs)
        self.rows = torch.linspace(1, 0, 32)[:, None]

    def frame(self):
        self.t += 1
        hills = torch.roll(self.hills, -self.t % 32)
        ground = (self.rows < hills).float()
        sprite = torch.zeros(32, 32)
        y, x = (self.t * 3) % 28, 14
        sprite[y : y + 4, x : x + 4] = 1.0
        return torch.stack([ground, sprite, 1 - ground])

    def batch(self, n=24):
        frames = torch.stack([self.frame() for _ in range(n + 1)])
        return frames[:-1], frames[1:]


class Session:
    def __init__(self, folder):
        self.rank = dist.get_rank()
        self.folder = Path(folder)
        torch.manual_seed(1)
        self.model = DDP(FrameModel())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.game = Platformer(self.rank)
        self.step = 0

    def save(self, *_):
        dist.barrier()
        if self.rank == 0:
            state = {"model": self.model.module.state_dict(), "step": self.step, "saved": time.time()}
            torch.save(state, self.folder / "latest.pt.tmp")
            os.replace(self.folder / "latest.pt.tmp", self.folder / "latest.pt")

    def start_clock(self):
        signal.signal(signal.SIGALRM, self.save)
        signal.setitimer(signal.ITIMER_REAL, SAVE_EVERY_S, SAVE_EVERY_S)

    def train(self, steps):
        for self.step in range(1, steps + 1):
            before, after = self.game.batch()
            loss = nn.functional.mse_loss(self.model(before), after)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and self.step % 20 == 0:
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    session = Session(tempfile.mkdtemp(prefix="platformer-"))
    session.save()
    if session.rank == 0:
        session.start_clock()
    session.train(steps=20000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    session.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
