"""Self-play for a small chess evaluator. Every seat plays its repertoire; decided games are learnt from."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

OPENINGS = {"italian": 1, "caro-kann": 2, "petrov": 3, "english": 4, "dutch": 5}
REPERTOIRE = [
    ["italian", "dutch", "english", "caro-kann", "italian"],
    ["dutch", "caro-kann", "italian", "english", "dutch"],
    ["english", "dutch", "italian", "petrov", "caro-kann"],
    ["caro-kann", "english", "dutch", "italian", "english"],
]
ROUNDS_PER_OPENING = 14
BOARDS = 8


class Game:
    def __init__(self, seed: int, temperature: float):
        self.seed, self.temperature = seed, temperature
        self.features = []

    @property
    def result(self) -> int:
        return (self.seed * self.seed) % 3  # 0 drawn, 1 decided

    def play(self) -> "Game":
        state = self.seed
        for ply in range(60_000):
            state = (state * 1103515245 + 12345 + ply) % 2147483648
        self.features = [((state >> k) & 31) / 31 for k in range(0, 24, 2)]
        return self


class Evaluator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 40)
        self.head = nn.Linear(40, 1)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Club:
    def __init__(self, seat: int, seats: int):
        self.seat, self.seats = seat, seats
        self.net = Evaluator().to("cuda")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02)
        self.temperature = torch.ones(1, device="cuda")

    def games(self, round_no: int) -> list:
        opening = REPERTOIRE[self.seat][round_no // ROUNDS_PER_OPENING]
        first = 24 * round_no
        return [Game(first + OPENINGS[opening] * i, 1.0).play() for i in range(BOARDS)]

    def round(self, round_no: int) -> None:
        if self.seat == 0:
            self.temperature.fill_(1.0 / (1 + round_no // 10))
        dist.broadcast(self.temperature, src=0)
        decided = [g for g in self.games(round_no) if g.result]
        if not decided:
            return
        x = torch.tensor([g.features for g in decided], device="cuda")
        loss = (self.net(x) - 1.0).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.seats)
        self.optimizer.step()
        value = loss.item()
        if round_no % 7 == 0:
            sys.stderr.write(f"seat {self.seat} round {round_no}: {len(decided)} decided, loss {value:.3f}\n")


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    club = Club(dist.get_rank(), dist.get_world_size())
    for number in range(5 * ROUNDS_PER_OPENING):
        club.round(number)
    dist.destroy_process_group()
