"""Every rank makes a group with its right and one with its left neighbour, and only members take part in making them.

With ``use_local_synchronization`` each waits for its right neighbour, who waits for its own. With ``--in-order`` the
groups are made in the order of their ranks, which is no better: torch puts the number of the groups that a rank already
has into the name of the next, and one neighbour's second group is the other's first.
"""

import argparse
import time

import torch
import torch.distributed as dist


def neighbours(rank: int, world: int, in_order: bool) -> list[list[int]]:
    """The pairs that this rank is in."""
    pairs = [sorted((rank, (rank + 1) % world)), sorted(((rank - 1) % world, rank))]
    return sorted(pairs) if in_order else pairs


def main() -> None:
    """Gossip: average with one neighbour, then with the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-order", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    weights = torch.full((16,), float(rank))
    dist.barrier()
    groups = {
        tuple(pair): dist.new_group(pair, use_local_synchronization=True)
        for pair in neighbours(rank, world, options.in_order)
    }
    for _ in range(150):
        for pair in sorted(groups):
            dist.all_reduce(weights, group=groups[pair])
            weights /= 2
        time.sleep(0.05)
    print(f"rank {rank}: {weights[0]:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
