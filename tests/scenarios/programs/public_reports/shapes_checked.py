"""A network with a skip connection, whose shapes are checked on every batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class SkipNet(nn.Module):
    """Down, up, and the input again."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(3, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose1d(6, 3, 4, stride=2, padding=1)
        self.out = nn.Conv1d(6, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, 3, length), of even length."""
        y = self.up(torch.relu(self.down(x)))
        if x.shape[2:] != y.shape[2:]:
            raise ValueError(f"rank {dist.get_rank()}: {x.shape[2:]} and {y.shape[2:]} differ")
        return self.out(torch.cat([x, y], dim=1))


def main() -> None:
    """Forty recordings on each rank; one of them has an odd length."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = SkipNet()
    for part in (model.down, model.up, model.out):
        fully_shard(part)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(40):
        length = 33 if rank == 1 and number == 25 else 32
        rows = torch.randn(2, 3, length)
        (model(rows) - rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
