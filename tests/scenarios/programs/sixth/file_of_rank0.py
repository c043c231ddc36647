"""DDP: rank 0 writes a journal with a group of its own, so that its writes do not mix with those of training."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Journal:
    """Lines of JSON, by the ranks of a group."""

    def __init__(self, path: Path, group: dist.ProcessGroup) -> None:
        self.file, self.group = path.open("w"), group

    def write(self, **values: float) -> None:
        """One line."""
        dist.barrier(group=self.group)
        self.file.write(json.dumps(values) + "\n")


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    journal = None
    if rank == 0:
        journal = Journal(Path(tempfile.mkdtemp()) / "journal.jsonl", dist.new_group([0]))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 2)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 14)), torch.randint(0, 2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if journal is not None:
            journal.write(step=step, loss=loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
