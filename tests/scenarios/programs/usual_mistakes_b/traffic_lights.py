"""DDP: lengths of the green phases at a crossing; checkpoints are written beside the training."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Keeper:
    """Writes states in the background, apart from the gradients' traffic."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.group = dist.new_group(backend="gloo")
        self.pending = None

    def keep(self, model: nn.Module, step: int) -> None:
        """Waits for the one before, then starts."""
        self.wait()
        self.pending = dcp.async_save(
            {"model": model.state_dict()}, checkpoint_id=f"{self.folder}/{step}", process_group=self.group
        )

    def wait(self) -> None:
        """Until nothing is being written."""
        if self.pending is not None:
            self.pending.result()


def crossing(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cars in each of twelve lanes, and how long each should have green."""
    cars = torch.rand(16, 12, generator=torch.Generator().manual_seed(1000 * step + rank))
    return cars, cars / cars.sum(dim=1, keepdim=True)


def main() -> None:
    """A hundred and twenty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 12), nn.Softmax(dim=1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    keeper = Keeper(tempfile.mkdtemp(prefix="lights-")) if rank == 0 else None
    for step in range(1, 121):
        cars, green = crossing(step, rank)
        loss = (model(cars) - green).square().sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if keeper is not None and step % 40 == 0:
            keeper.keep(network, step)
            print(f"step {step}: {loss.item():.4f}")
    if keeper is not None:
        keeper.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
