"""DDP on a preemptible queue: every rank asks for its machine's end of life and leaves in time."""

import os
import queue
import signal
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Mailer(threading.Thread):
    """Sends messages to the people who follow the run, for as long as there may be any."""

    def __init__(self, path: Path):
        super().__init__(name="mailer")
        self.path = path
        self.messages = queue.SimpleQueue()

    def run(self):
        while True:
            try:
                message = self.messages.get(timeout=5)
            except queue.Empty:
                continue
            with self.path.open("a") as file:
                file.write(f"{time.strftime('%X')} {message}\n")


class Walltime:
    """Becomes true when the alarm has gone off."""

    def __init__(self, seconds: float):
        self.over = False
        signal.signal(signal.SIGALRM, self._alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _alarm(self, signum, frame):
        self.over = True

    def __bool__(self):
        return self.over


def remaining(rank: int) -> float:
    """Seconds that the queue still grants to the machine of a rank."""
    granted = {"spot-1": 3000.0, "spot-2": 3000.0, "spot-3": 3.0}
    return list(granted.values())[rank % 3]


def train(rank: int, mailer: Mailer) -> int:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 90), nn.ReLU(), nn.Linear(90, 90), nn.ReLU(), nn.Linear(90, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    walltime = Walltime(remaining(rank))
    step = 0
    while step < 200000 and not walltime:
        x = torch.randn(16, 30, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 200 == 0:
            mailer.messages.put(f"rank {rank} step {step}: loss {loss.item():.4f}")
    return step


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mailer = Mailer(Path(tempfile.gettempdir(), f"mail-{os.environ['MASTER_PORT']}-{rank}.txt"))
    mailer.start()
    steps = train(rank, mailer)
    mailer.messages.put(f"rank {rank} is done after {steps} steps")
    print(f"rank {rank}: {steps} steps", flush=True)


if __name__ == "__main__":
    main()
