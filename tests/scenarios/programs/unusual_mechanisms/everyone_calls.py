"""Overlapping groups, and calls by ranks that are in none of them: torch lets those pass.

A toolkit that calls everything everywhere, and relies on that. Run by ``torchrun --nproc-per-node 5``.
"""

import warnings
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Team:
    """Ranks that share something; other ranks may call its methods, too."""

    ranks: tuple[int, ...]
    group: "dist.ProcessGroup | None" = field(init=False)

    def __post_init__(self) -> None:
        self.group = dist.new_group(self.ranks)

    def wait(self) -> None:
        """Meet. Who is no member goes on at once."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.barrier(group=self.group)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """The mean of the members; others get their own value back."""
        shared = value.clone()
        if dist.get_rank() not in self.ranks:
            return shared
        dist.all_reduce(shared, group=self.group)
        return shared / len(self.ranks)


def main() -> None:
    """Twelve seconds or so of ragged meetings, in one order of teams."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    teams = [Team((0, 1, 2)), Team((2, 3)), Team((1, 3, 4)), Team((0, 4)), Team((0, 1, 2, 3, 4))]
    value = torch.full((8,), float(rank))
    for round_ in range(60):
        for team in teams:
            if (round_ + rank) % 5 == 0:
                torch.linalg.svd(torch.randn(160, 160))
            team.wait()
            value = team.mean(value)
    print(rank, value.mean().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
