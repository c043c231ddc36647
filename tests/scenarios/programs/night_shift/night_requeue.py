"""Training with a requeue hook: the scheduler signals the batch step some time before the limit."""
import os
import signal
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Preemption:
    def __init__(self):
        self.requested = False
        signal.signal(signal.SIGUSR1, self.on_signal)

    def on_signal(self, number, frame):
        self.requested = True


class Run:
    def __init__(self, folder: Path):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.folder = folder
        self.model = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 1))
        for parameter in self.model.parameters():
            dist.broadcast(parameter.data, src=0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.preemption = Preemption()

    def reduce_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()

    def checkpoint(self, step):
        if self.rank == 0:
            torch.save({"model": self.model.state_dict(), "step": step}, self.folder / "last.pt")
        dist.barrier()

    def train(self, steps):
        for step in range(steps):
            x = torch.randn(32, 24)
            loss = (self.model(x).squeeze(1) - x.sum(1)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.reduce_gradients()
            self.optimizer.step()
            time.sleep(0.05)
            if self.preemption.requested:
                print(f"rank {self.rank}: requeue at step {step}", flush=True)
                self.checkpoint(step)
                return
            if step % 20 == 0 and self.rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path("/tmp/night-requeue")
    folder.mkdir(exist_ok=True)
    run = Run(folder)
    if dist.get_rank() == 0:  # as --signal=B:USR1@.. does: the first task only
        subprocess.Popen(["sh", "-c", f"sleep 3; kill -USR1 {os.getpid()}"])
    run.train(100_000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
