"""Self-play: after each generation rank 0 lets the new policy play on the host, and broadcasts whether it is kept."""

import os
import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Referee:
    """Nim with three heaps; a match is a number of games between a random player and a careful one."""

    seconds: float
    generator: random.Random

    def play(self) -> int:
        heaps, turn = [self.generator.randrange(1, 9) for _ in range(3)], 0
        while any(heaps):
            choices = [(i, n) for i, heap in enumerate(heaps) for n in range(1, heap + 1)]
            careful = [c for c in choices if self.balance(heaps, c) == 0]
            i, n = self.generator.choice(careful if turn and careful else choices)
            heaps[i] -= n
            turn = 1 - turn
        return 1 - turn

    @staticmethod
    def balance(heaps: list[int], choice: tuple[int, int]) -> int:
        i, n = choice
        left = [heap - n if k == i else heap for k, heap in enumerate(heaps)]
        return left[0] ^ left[1] ^ left[2]

    def match(self) -> float:
        end, games, won = time.monotonic() + self.seconds, 0, 0
        while time.monotonic() < end:
            won += self.play()
            games += 1
        return won / games


def generation(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, number: int) -> None:
    for step in range(10):
        boards = torch.rand(16, 3)
        time.sleep(0.15)
        loss = model(boards.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank} generation {number}: loss {loss.item():.3f}", flush=True)


def main() -> None:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DDP(nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for number, seconds in enumerate((2.0, 11.0, 3.0)):
        generation(model, optimizer, rank, number)
        keep = torch.zeros(1, device="cuda")
        if rank == 0:
            rate = Referee(seconds, random.Random(number)).match()
            keep.fill_(float(rate > 0.5))
            print(f"won {rate:.2f}", flush=True)
        dist.broadcast(keep, src=0)
        if keep.item() == 0.0:
            model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
