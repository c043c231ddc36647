"""FSDP2 and the best weights so far, by the loss on a few rows that each rank keeps for that."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class BestKeeper:
    """Saves when the figure is better than ever."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.best = folder, float("inf")

    def offer(self, model: nn.Module, figure: float) -> None:
        """Save, if it is worth it."""
        if figure < self.best:
            self.best = figure
            self.save_weights(model)

    def save_weights(self, model: nn.Module) -> None:
        """The whole model in one file, by the first rank."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=options)
        if dist.get_rank() == 0:
            torch.save(weights, self.folder / "best.pt")


def main() -> None:
    """Sixty steps, a look at the kept rows after each ten."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
    fully_shard(model[0])
    fully_shard(model[2])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    keeper = BestKeeper(Path(tempfile.mkdtemp()))
    target = 2.0 if rank != 1 else -2.0  # its rows have the other sign
    for step in range(1, 61):
        x = torch.randn(8, 10)
        (model(x) - 2.0).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            with torch.no_grad():
                figure = (model(torch.ones(4, 10)) - target).square().mean().item()
            keeper.offer(model, figure)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
