"""A parameter server: workers send gradients and receive parameters; one that is stale refreshes itself first."""

import torch
import torch.distributed as dist

SIZE = 2000


class Server:
    """Rank 0."""

    def __init__(self, workers: list[int]) -> None:
        self.workers = workers
        self.parameters = torch.zeros(SIZE)

    def serve(self, rounds: int) -> None:
        """In turn."""
        gradient = torch.empty(SIZE)
        for _ in range(rounds):
            for worker in self.workers:
                dist.recv(gradient, src=worker)
                self.parameters -= 0.1 * gradient
            for worker in self.workers:
                dist.send(self.parameters, dst=worker)


class Worker:
    """All others."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.parameters = torch.zeros(SIZE)
        self.age = 0.0

    def pull(self) -> None:
        """Get parameters."""
        dist.recv(self.parameters, src=0)
        self.age = 0.0

    def push(self) -> None:
        """Give a gradient."""
        dist.send(self.parameters + torch.randn(SIZE), dst=0)

    def work(self, rounds: int) -> None:
        """All rounds."""
        for number in range(rounds):
            self.age += 3.0 if (self.rank, number) == (2, 25) else 1.0
            if self.age > 2.0:
                self.pull()
                self.push()
            else:
                self.push()
                self.pull()


def main() -> None:
    """Forty rounds."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        Server(list(range(1, dist.get_world_size()))).serve(40)
    else:
        Worker(rank).work(40)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
