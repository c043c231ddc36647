"""Drift of spray over an orchard, the field cut into strips; a strip needs the edge columns of its neighbours."""
from dataclasses import dataclass

import torch
import torch.distributed as dist

WIDTH, HEIGHT, EDGE = 240, 900, 4


@dataclass
class Strip:
    rank: int
    columns: int
    colour: int  # strips of colour 0 give first, those of colour 1 take first
    left: int | None
    right: int | None


def layout(world, widths):
    """One strip per rank; narrow strips keep the colour of the strip that they were split off."""
    strips, colour = [], 0
    for rank, columns in enumerate(widths):
        if rank and columns >= WIDTH // 4:
            colour = 1 - strips[-1].colour
        strips.append(Strip(rank, columns, colour, rank - 1 if rank else None, rank + 1 if rank + 1 < world else None))
    return strips


class Field:
    def __init__(self, strip, seed):
        gen = torch.Generator().manual_seed(seed)
        self.strip = strip
        self.state = torch.rand(HEIGHT, strip.columns + 2 * EDGE, generator=gen)

    def give(self, peer, columns):
        dist.send(self.state[:, columns].contiguous(), dst=peer)

    def take(self, peer, columns):
        buffer = torch.empty(HEIGHT, EDGE)
        dist.recv(buffer, src=peer)
        self.state[:, columns] = buffer

    def exchange(self):
        sides = []
        if self.strip.left is not None:
            sides.append((self.strip.left, slice(EDGE, 2 * EDGE), slice(0, EDGE)))
        if self.strip.right is not None:
            sides.append((self.strip.right, slice(-2 * EDGE, -EDGE), slice(-EDGE, None)))
        for peer, inner, outer in sides:
            if self.strip.colour == 0:
                self.give(peer, inner)
                self.take(peer, outer)
            else:
                self.take(peer, outer)
                self.give(peer, inner)

    def advance(self, wind):
        padded = torch.nn.functional.pad(self.state[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
        mean = (padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]) / 4
        self.state = (1 - wind) * self.state + wind * mean

    def deposit(self):
        total = self.state[:, EDGE:-EDGE].sum()
        dist.all_reduce(total)
        return total.item()


def balanced(cost):
    """Widths in proportion to the speed that the ranks have shown."""
    speed = 1 / torch.tensor(cost)
    return [int(w) for w in (3 * WIDTH * speed / speed.sum())]


def simulate(field, minutes, wind):
    for _ in range(minutes):
        field.exchange()
        field.advance(wind)
    return field.deposit()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    widths = [WIDTH] * world
    for pass_number, cost in enumerate([(1.0, 1.0, 1.0), (1.1, 1.0, 1.2), (1.0, 1.3, 1.0), (1.0, 1.0, 11.0)]):
        widths = balanced(cost)
        field = Field(layout(world, widths)[rank], seed=pass_number * world + rank)
        for hour in range(3):
            total = simulate(field, 40, wind=0.2)
            if rank == 0:
                print(f"pass {pass_number} hour {hour} widths {widths} deposit {total:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
