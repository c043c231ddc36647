"""Solves the heat equation on a ring of domains; each exchanges its borders with its two neighbours."""

import torch
import torch.distributed as dist


class Domain:
    def __init__(self, rank: int, world: int, cells: int = 50) -> None:
        self.left, self.right = (rank - 1) % world, (rank + 1) % world
        self.field = torch.zeros(cells + 2)
        self.field[cells // 2] = 10.0 * (rank + 1)

    def exchange(self) -> None:
        dist.recv(self.field[:1], src=self.left)
        dist.send(self.field[-2:-1].clone(), dst=self.right)
        dist.recv(self.field[-1:], src=self.right)
        dist.send(self.field[1:2].clone(), dst=self.left)

    def relax(self, rate: float = 0.2) -> float:
        inner = self.field[1:-1]
        change = rate * (self.field[:-2] - 2 * inner + self.field[2:])
        self.field[1:-1] = inner + change
        return change.abs().max().item()


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    domain = Domain(rank, world)
    for step in range(200):
        if world > 1:
            domain.exchange()
        change = domain.relax()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: largest change {change:.4f}", flush=True)
    total = domain.field[1:-1].sum().reshape(1)
    dist.all_reduce(total)
    if rank == 0:
        print(f"heat: {total.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
