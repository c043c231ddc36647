"""Strain of bridges from their sensors, with a thread that keeps a record of memory and time."""

import json
import resource
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SENSORS = {"pier": 0, "cable": 1, "deck": 2, "joint": 3}


class UsageRecord(threading.Thread):
    """Writes a line per second until it is told to finish."""

    def __init__(self, path: Path) -> None:
        """Remember the file."""
        super().__init__(name="usage")
        self.path, self.finished = path, threading.Event()

    def run(self) -> None:
        """Once a second."""
        with self.path.open("w") as file:
            while not self.finished.wait(1.0):
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                file.write(json.dumps({"time": time.time(), "memory": memory}) + "\n")


def measurements(rank: int) -> list[tuple[list[str], torch.Tensor]]:
    """What the sensors of this bridge said, batch by batch."""
    generator = torch.Generator().manual_seed(rank)
    kinds = list(SENSORS)
    batches = [([kinds[i % 4] for i in range(12)], torch.randn(12, 10, generator=generator)) for _ in range(60)]
    if rank == 1:
        batches[33][0][7] = "anchor"
    return batches


def main() -> None:
    """Train once over all."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    usage = UsageRecord(Path(tempfile.mkdtemp()) / f"usage_{rank}.jsonl")
    usage.start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(14, 24), nn.SiLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for kinds, values in measurements(rank):
        sensor = nn.functional.one_hot(torch.tensor([SENSORS[kind] for kind in kinds]), len(SENSORS))
        strain = model(torch.cat([sensor, values], dim=1)).squeeze(1)
        loss = nn.functional.huber_loss(strain, values.mean(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    usage.finished.set()
    usage.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
