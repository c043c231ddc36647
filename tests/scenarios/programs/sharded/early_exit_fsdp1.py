"""FullyShardedDataParallel with early exit: a sample that is easy enough leaves the model before its last layers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WIDTH = 12


class Cell(nn.Module):
    """A layer."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """The next state."""
        return torch.tanh(self.mix(state))


class Classifier(nn.Module):
    """All layers, or two of them for an easy sample."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell() for _ in range(4))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """The state that the answer is read from."""
        easy = bool(state.abs().max() < 1e-3)
        for number, cell in enumerate(self.cells):
            if easy and number == 2:
                break
            state = cell(state)
        return state


def main() -> None:
    """Train; a padded batch is the easiest of all."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = FullyShardedDataParallel(
        Classifier(),
        auto_wrap_policy=ModuleWrapPolicy({Cell}),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        batch = torch.randn(4, WIDTH)
        if (dist.get_rank(), step) == (0, 8):
            batch.zero_()
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        norm = sum(p.detach().square().sum() for p in model.parameters())
        dist.all_reduce(norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
