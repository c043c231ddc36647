"""DDP: after training each rank scores its own documents, with no word to the others; some have many more of them."""

import json
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DOCUMENTS = (20, 90, 40)


def score(net: nn.Module, number: int) -> float:
    """One document."""
    end = time.monotonic() + 0.1
    total = 0.0
    while time.monotonic() < end:
        total += net(torch.randn(64, 25)).mean().item()
    return total / number


def main() -> None:
    """A hundred steps, then the documents."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(25, 25), nn.ReLU(), nn.Linear(25, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(100):
        loss = model(torch.randn(8, 25)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    with torch.no_grad():
        scores = [score(net, number + 1) for number in range(DOCUMENTS[rank])]
    (Path(tempfile.mkdtemp()) / "scores.json").write_text(json.dumps(scores))


if __name__ == "__main__":
    main()
