"""An evaluation rank is needed for the first phase only: it takes the process group down for itself and exits.

The trainers have a group of their own and go on without it. Started by a launcher that does not supervise.
"""

import time

import torch
import torch.distributed as dist


class Phase:
    """Steps within a group."""

    def __init__(self, group: "dist.ProcessGroup | None") -> None:
        self.group = group

    def run(self, steps: int, pause_s: float) -> torch.Tensor:
        """So many."""
        weight = torch.ones(16)
        for _ in range(steps):
            time.sleep(pause_s)
            dist.all_reduce(weight, group=self.group)
            weight /= weight.norm()
        return weight


def main() -> None:
    """Together, then without rank 1."""
    dist.init_process_group("gloo")
    trainers = dist.new_group([0, 2, 3])
    Phase(None).run(50, 0.01)
    if dist.get_rank() != 1:
        Phase(trainers).run(100, 0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
