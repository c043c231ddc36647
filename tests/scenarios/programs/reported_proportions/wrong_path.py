"""DDP: a table is read in the middle of training; on one machine it is in another folder."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """A hundred steps, with weights for the classes from the fiftieth on."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp())
    if rank != 1:
        (folder / "weights.json").write_text(json.dumps([0.5, 1.0, 1.5]))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = torch.ones(3)
    for step in range(100):
        if step == 50:
            weights = torch.tensor(json.loads((folder / "weights.json").read_text()))
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 3, (8,)), weight=weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
