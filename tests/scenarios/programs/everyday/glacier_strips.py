"""Flow of a glacier cut into strips; neighbours share a group for what they exchange at their common edge."""

import torch
import torch.distributed as dist

CELLS, YEARS = 40, 200


class Strip:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.ice = torch.linspace(100 - 10 * rank, 90 - 10 * rank, CELLS)
        self.upper = dist.new_group([rank - 1, rank]) if rank > 0 else None
        self.lower = dist.new_group([rank, rank + 1]) if rank < world - 1 else None

    def edge(self, group, mine):
        """What lies on the other side of the edge: the sum of both, less our own."""
        both = mine.clone()
        dist.all_reduce(both, group=group)
        return both - mine

    def flow(self, rate=0.1):
        above = self.edge(self.upper, self.ice[:1]) if self.upper is not None else self.ice[:1]
        below = self.edge(self.lower, self.ice[-1:]) if self.lower is not None else self.ice[-1:]
        padded = torch.cat([above, self.ice, below])
        self.ice = self.ice + rate * (padded[:-2] - 2 * padded[1:-1] + padded[2:])


def main():
    dist.init_process_group("gloo")
    strip = Strip(dist.get_rank(), dist.get_world_size())
    for _ in range(YEARS):
        strip.flow()
    volume = strip.ice.sum()
    dist.all_reduce(volume)
    if strip.rank == 0:
        print(f"{volume.item():.1f} after {YEARS} years")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
