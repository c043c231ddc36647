"""DDP: after training the first rank writes the weights, the others wait until the file is there and load it."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wait_for(path: Path) -> Path:
    """Looks every two seconds."""
    while not path.exists():
        time.sleep(2.0)
    return path


def main() -> None:
    """A hundred steps, then a test of what was written."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.mkdtemp(prefix="forecast-")) / "weights.pt"
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(15, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(100):
        loss = model(torch.randn(8, 15)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), path)
    tested = nn.Linear(15, 3)
    tested.load_state_dict(torch.load(wait_for(path)))
    error = tested(torch.ones(1, 15)).square().mean().detach()
    dist.all_reduce(error)
    if rank == 0:
        print(f"{error.item() / dist.get_world_size():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
