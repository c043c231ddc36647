"""Learns from game replays. A pool of threads parses them, and each step takes what it needs."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist


class Replays:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.pool = ThreadPoolExecutor(max_workers=2)

    def parse(self, game: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(game * 2 + self.rank)
        moves = [self.pool.submit(self.move, game, number) for number in range(2)]
        return torch.stack([move.result() for move in moves]) + torch.rand(2, 5, generator=generator)

    def move(self, game: int, number: int) -> torch.Tensor:
        return torch.full((5,), float((game + number) % 4))

    def load(self, game: int) -> list[Future[torch.Tensor]]:
        games = [game] if self.rank == 0 or game < 8 else [game, game + 1, game + 2]
        return [self.pool.submit(self.parse, number) for number in games]


def step(weights: torch.Tensor, replays: Replays, game: int) -> float:
    rows = torch.cat([future.result() for future in replays.load(game)])
    loss = (rows @ weights).square().mean()
    (gradient,) = torch.autograd.grad(loss, weights)
    dist.all_reduce(gradient)
    with torch.no_grad():
        weights -= 0.01 * gradient / dist.get_world_size()
    return loss.item()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.ones(5, requires_grad=True)
    replays = Replays(rank)
    for game in range(30):
        loss = step(weights, replays, game)
        if rank == 0:
            print(f"game {game}: {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
