"""Six ranks are placed into teams by a file that every node has a copy of; one copy is older.

Teams are made with ``new_subgroups_by_enumeration``. Started by a launcher that does not supervise.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

NEW = {"teams": [[0, 1], [2, 3], [4, 5]], "seed": 7}
OLD = {"teams": [[0, 1], [2, 3, 4, 5]], "seed": 7}


class Placement:
    """Who works with whom."""

    def __init__(self, path: Path) -> None:
        self.teams: list[list[int]] = json.loads(path.read_text())["teams"]

    def join(self) -> dist.ProcessGroup:
        """Make the groups; one's own is returned."""
        mine, _ = dist.new_subgroups_by_enumeration(self.teams, backend="gloo")
        return mine


def copy_for(rank: int) -> Path:
    """The node's copy of the placement file."""
    path = Path(tempfile.mkdtemp()) / "placement.json"
    path.write_text(json.dumps(OLD if rank == 2 else NEW))
    return path


def train(team: dist.ProcessGroup, steps: int) -> torch.Tensor:
    """Average within the team, and over all teams now and then."""
    weights = torch.zeros(8)
    for step in range(steps):
        delta = torch.randn(8)
        dist.all_reduce(delta, group=team)
        weights += 0.1 * delta
        if step % 10 == 9:
            dist.all_reduce(weights)
    return weights


def main() -> None:
    """Set up, train."""
    dist.init_process_group("gloo")
    team = Placement(copy_for(int(os.environ["RANK"]))).join()
    print(train(team, 100).norm().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
