"""Rank 0 deals out work with scatter and collects it with gather. Its calls stand elsewhere than the workers', and are larger.

With ``--first 7`` one of rank 2's pieces cannot be computed; the worker leaves it out and asks for the next.
"""

import argparse
import time

import torch
import torch.distributed as dist

ROUNDS = 20


class Dealer:
    """Rank 0: has the pieces, keeps the results, and works on its own share."""

    def __init__(self, start: int) -> None:
        self.start, self.world = start, dist.get_world_size()
        self.results: list[torch.Tensor] = []

    def deal(self, number: int) -> torch.Tensor:
        """Send each rank its piece."""
        pieces = [torch.full((16,), 1.0 + number + rank) for rank in range(self.world)]
        pieces[2] = torch.full((16,), float(self.start - number))
        mine = torch.zeros(16)
        dist.scatter(mine, pieces, src=0)
        return mine

    def collect(self, mine: torch.Tensor) -> None:
        """Take everybody's result."""
        parts = [torch.zeros(4) for _ in range(self.world)]
        dist.gather(mine, parts, dst=0)
        self.results.append(torch.cat(parts))


def compute(piece: torch.Tensor) -> torch.Tensor:
    """The work. Raises ValueError for a piece that has no logarithm."""
    if not bool((piece.abs() > 0).all()):
        raise ValueError("piece of zeros")
    time.sleep(0.1)
    return piece.abs().log().view(4, 4).sum(1)


def serve() -> None:
    """What a worker does."""
    piece = torch.zeros(16)
    for number in range(ROUNDS):
        dist.scatter(piece, src=0)
        try:
            result = compute(piece)
        except ValueError as error:
            print(f"[{dist.get_rank()}] round {number}: {error}\n", end="", flush=True)
            continue
        dist.gather(result, dst=0)


def lead(start: int) -> None:
    """What rank 0 does."""
    dealer = Dealer(start)
    for number in range(ROUNDS):
        dealer.collect(compute(dealer.deal(number)))
        print(f"round {number}: {dealer.results[-1].sum().item():.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        lead(options.first)
    else:
        serve()
    dist.barrier()
    dist.destroy_process_group()
