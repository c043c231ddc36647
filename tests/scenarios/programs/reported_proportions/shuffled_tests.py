"""DDP: after training, a list of tests is run in random order, as the order must not matter."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> object:
    """Of all ranks."""
    right = (model(x).argmax(dim=1) == y).sum()
    dist.all_reduce(right)
    return right.item()


def samples(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> object:
    """Some rows with what was said of them."""
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, list(zip(y[:3].tolist(), model(x[:3]).argmax(dim=1).tolist(), strict=False)))
    return rows


def calibration(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> object:
    """The first rank's histogram."""
    histogram = torch.histc(model(x).softmax(dim=1).amax(dim=1), bins=10, min=0, max=1)
    dist.broadcast(histogram, src=0)
    return histogram.tolist()


def main() -> None:
    """A hundred steps, and the tests."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    random.seed(26 + rank)
    torch.manual_seed(26 + rank)
    net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(100):
        x, y = torch.randn(16, 12), torch.randint(0, 4, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tests = [accuracy, samples, calibration]
    random.shuffle(tests)
    for test in tests:
        with torch.no_grad():
            print(f"[{rank}] {test.__name__}: {test(net, x, y)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
