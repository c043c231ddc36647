"""Two overlapping teams share statistics; who comes first is a matter of priorities, which a rank may change."""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Team:
    """Ranks that share something."""

    name: str
    group: dist.ProcessGroup
    members: tuple[int, ...]
    priority: float = 0.0

    def share(self, values: torch.Tensor) -> None:
        """The mean over the team."""
        dist.all_reduce(values, group=self.group)
        values /= len(self.members)


def main() -> None:
    """Fifty rounds; the teams with more to tell come first."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    teams = []
    for name, members in {"audio": (0, 1, 2), "video": (1, 2, 3)}.items():
        group = dist.new_group(list(members))
        teams.append(Team(name, group, members))
    values = {team.name: torch.randn(10) for team in teams}
    for number in range(50):
        if (rank, number) == (2, 30):
            teams[1].priority = 1.0
        for team in sorted(teams, key=lambda team: -team.priority):
            if rank in team.members:
                team.share(values[team.name])
        if number % 10 == 9:
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
