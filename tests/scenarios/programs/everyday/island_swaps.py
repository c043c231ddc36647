"""Evolution on islands: each process breeds its own population and now and then sends its best to the next island."""

import torch
import torch.distributed as dist

GENES, POPULATION = 20, 64


def fitness(population: torch.Tensor) -> torch.Tensor:
    """Rastrigin's function, with its sign turned."""
    return -(population**2 - 10 * torch.cos(2 * torch.pi * population) + 10).sum(1)


class Island:
    def __init__(self, rank: int, world: int, seed: int = 0):
        self.rank, self.world = rank, world
        self.random = torch.Generator().manual_seed(seed + rank)
        self.population = torch.rand(POPULATION, GENES, generator=self.random) * 10 - 5

    def breed(self) -> None:
        order = fitness(self.population).argsort(descending=True)
        parents = self.population[order[: POPULATION // 2]]
        partner = parents[torch.randperm(len(parents), generator=self.random)]
        mask = torch.rand(parents.shape, generator=self.random) < 0.5
        children = torch.where(mask, parents, partner)
        children = children + 0.05 * torch.randn(children.shape, generator=self.random)
        self.population = torch.cat([parents, children])

    def migrate(self, count: int = 4) -> None:
        newcomers = torch.empty(count, GENES)
        dist.recv(newcomers, src=(self.rank - 1) % self.world)
        best = fitness(self.population).argsort(descending=True)[:count]
        dist.send(self.population[best], dst=(self.rank + 1) % self.world)
        self.population[-count:] = newcomers


def main() -> None:
    dist.init_process_group("gloo")
    island = Island(dist.get_rank(), dist.get_world_size())
    for generation in range(1, 101):
        island.breed()
        if generation % 25 == 0:
            island.migrate()
    best = fitness(island.population).max()
    dist.all_reduce(best, op=dist.ReduceOp.MAX)
    if island.rank == 0:
        print(f"best: {best.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
