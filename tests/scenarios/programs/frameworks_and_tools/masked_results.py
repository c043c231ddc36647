"""A master and workers by send and receive: a result is a vector, and where some of it is unknown a mask follows."""

import torch
import torch.distributed as dist

SIZE = 200_000


class Worker:
    """Works on what the master sends."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.task = torch.empty(SIZE)

    def turn(self, number: int) -> None:
        """One task, one result."""
        dist.recv(self.task, src=0)
        result = self.task * (self.rank + number)
        if self.rank == 2 and number % 8 == 5:
            result[::97] = float("nan")
        unknown = result.isnan()
        dist.send(torch.nan_to_num(result), dst=0)
        if unknown.any():
            dist.send(unknown.float(), dst=0)


class Master:
    """Sends tasks and sums up results."""

    def __init__(self, world: int) -> None:
        self.world, self.total = world, torch.zeros(SIZE)

    def turn(self, number: int) -> None:
        """A task for everybody, then everybody's result."""
        for worker in range(1, self.world):
            dist.send(torch.full((SIZE,), 1.0 / (number + 1)), dst=worker)
        for worker in range(1, self.world):
            result = torch.empty(SIZE)
            dist.recv(result, src=worker)
            self.total += result


def main() -> None:
    """Thirty turns."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    role = Master(dist.get_world_size()) if rank == 0 else Worker(rank)
    for number in range(30):
        role.turn(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
