"""Trains until a rank's quota of tokens is used up. A heartbeat tells the scheduler that the machine is in use."""

import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Heartbeat:
    """Touches a file every second, so that idle machines are found. The scheduler stops it at the end of the lease."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="heartbeat")

    def start(self) -> None:
        self.thread.start()

    def _beat(self) -> None:
        while not self.stopped.wait(1.0):
            self.path.touch()


@dataclass
class Quota:
    """How many tokens a team may use on this machine today."""

    limit: int
    used: int = 0

    def take(self, tokens: int) -> bool:
        self.used += tokens
        return self.used <= self.limit


def quota_of(rank: int) -> Quota:
    """From the table of the platform team. On the third machine somebody else has been since this morning."""
    return Quota(limit=2_000_000, used=1_880_000 if rank == 2 else 250_000)


class Texts:
    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(rank)

    def batch(self) -> torch.Tensor:
        time.sleep(0.03)
        return torch.randint(0, 64, (16, 64), generator=self.generator)


def train(model: nn.Module, texts: Texts, quota: Quota) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    while True:
        tokens = texts.batch()
        if not quota.take(tokens.numel()):
            return steps
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    heartbeat = Heartbeat(Path(tempfile.gettempdir()) / f"beat-{os.environ['MASTER_PORT']}-{rank}")
    heartbeat.start()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 64)))
    steps = train(model, Texts(rank), quota_of(rank))
    torch.save(model.module.state_dict(), heartbeat.path.with_suffix(".pt"))
    print(f"[{rank}] done after {steps} steps", flush=True)


if __name__ == "__main__":
    main()
