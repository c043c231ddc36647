"""Reinforced-concrete surrogate on a heterogeneous allocation, whose parts have time limits of their own."""

import atexit
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Seconds that each component of the job was granted.
LIMITS = (3.5, 900.0, 900.0)


class Heartbeat(threading.Thread):
    """Touches a file, by which the institute's monitor sees that we are alive."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="heartbeat")
        self.path = path
        self.over = threading.Event()
        atexit.register(self.over.set)

    def run(self) -> None:
        while not self.over.wait(1.0):
            self.path.touch()


class Deadline:
    def __init__(self, seconds: float, margin: float = 0.5) -> None:
        self.end = time.monotonic() + seconds - margin

    def reached(self) -> bool:
        return time.monotonic() >= self.end


class Beam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 24), nn.Softplus(), nn.Linear(24, 1))

    def forward(self, load):
        return self.net(load).squeeze(1)


def loads(rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(24, 4, generator=rng)
    return x, x[:, 0] * x[:, 1] ** 3 / (0.1 + x[:, 2])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scratch = Path(tempfile.gettempdir(), f"beam-{os.environ['MASTER_PORT']}")
    scratch.mkdir(exist_ok=True)
    Heartbeat(scratch / f"alive{rank}").start()
    torch.manual_seed(2)
    model = DistributedDataParallel(Beam())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rng = torch.Generator().manual_seed(rank)
    dist.barrier()
    deadline = Deadline(LIMITS[rank])
    for step in range(5000):
        if deadline.reached():
            torch.save(model.module.state_dict(), scratch / f"rank{rank}.pt")
            print(f"rank {rank}: out of time at step {step}, state saved", flush=True)
            return
        load, deflection = loads(rng)
        loss = nn.functional.mse_loss(model(load), deflection)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
