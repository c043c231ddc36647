"""Domain decomposition: neighbours exchange halos in a blocking way, and who sends first is looked up in a table.

After a repartition one pair has the same role in the table, and both receive first.
"""

import argparse

import torch
import torch.distributed as dist

CELLS = 64


def roles(world: int, epoch: int) -> list[bool]:
    """Which ranks send first."""
    first = [rank % 2 == 0 for rank in range(world)]
    if epoch >= 3:
        first[world - 2] = False  # the last domain was split, and its upper half keeps the role of the whole
    return first


def exchange(field: torch.Tensor, partner: int, sends_first: bool) -> torch.Tensor:
    """Our edge to the partner, the partner's to us."""
    edge, halo = field[-1:].clone(), torch.empty(1)
    if sends_first:
        dist.send(edge, dst=partner)
        dist.recv(halo, src=partner)
    else:
        dist.recv(halo, src=partner)
        dist.send(edge, dst=partner)
    return halo


def main() -> None:
    """Diffuse."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    field = torch.rand(CELLS)
    for epoch in range(options.epochs):
        sends_first = roles(world, epoch)[rank]
        for _ in range(10):
            halo = exchange(field, rank ^ 1, sends_first)
            padded = torch.cat([field[:1], field, halo])
            field = field + 0.1 * (padded[2:] - 2 * field + padded[:-2])
            norm = field.norm()
            dist.all_reduce(norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
