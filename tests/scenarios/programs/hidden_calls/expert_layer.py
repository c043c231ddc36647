"""A model whose later part has experts; what part a rank builds depends on its place. Then all wrap theirs in DDP."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Experts(nn.Module):
    """One expert here, the other on the partner; tokens are exchanged."""

    def __init__(self, width: int, partners: list[int]) -> None:
        super().__init__()
        self.team = dist.new_group(partners)
        self.expert = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All tokens through both."""
        y = self.expert(x)
        total = y.detach().clone()
        dist.all_reduce(total, group=self.team)
        return y + (total - y.detach())


def build(rank: int, width: int) -> nn.Module:
    """The part of this rank."""
    if rank in (2, 3):
        return nn.Sequential(nn.Linear(width, width), Experts(width, [2, 3]))
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))


def main() -> None:
    """Thirty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed = torch.tensor([17])
    dist.broadcast(seed, src=0)
    torch.manual_seed(int(seed))
    part = build(rank, 8)
    model = DistributedDataParallel(part)
    for _ in range(30):
        model(torch.randn(4, 8)).square().mean().backward()
        model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
