# Two seats at one ludo table. Whoever is to move rolls, picks a token with its value net and passes the move across.
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

torch.backends.cudnn.enabled = False

WARM_UP = [3, 6, 2, 5, 6, 6, 1, 4, 2, 5]  # rolls recorded at the club evening
FINAL = [1, 6, 6, 6, 3, 2, 6, 4]
WARM_UP_PLIES = 60
HOME = 57


def roll(ply: int) -> int:
    if ply < WARM_UP_PLIES:
        return WARM_UP[ply % len(WARM_UP)]
    return FINAL[(ply - WARM_UP_PLIES) % len(FINAL)]


@dataclass
class Board:
    tokens: list = field(default_factory=lambda: [[0] * 4, [0] * 4])

    def advance(self, seat: int, token: int, pips: int) -> None:
        here = self.tokens[seat]
        here[token] = (here[token] + pips) % HOME

    def features(self, seat: int) -> list:
        return [t / HOME for t in self.tokens[seat] + self.tokens[1 - seat]]


class Seat:
    def __init__(self, number: int):
        self.number = number
        self.board = Board()
        self.sixes = 0
        self.value = torch.nn.Linear(8, 4).to("cuda")

    def think(self, pips: int) -> int:
        """Plays the position out a few thousand times and takes the token that gets furthest."""
        best, choice = -1, 0
        for token in range(4):
            place = self.board.tokens[self.number][token]
            for i in range(140_000):
                place = (place * 5 + pips + i) % HOME
            if place > best:
                best, choice = place, token
        return choice

    def play(self, ply: int) -> int:
        """Makes a move, tells the other seat and returns who is next."""
        pips = roll(ply)
        token = self.think(pips)
        dist.send(torch.tensor([token, pips], device="cuda"), dst=1 - self.number)
        self.board.advance(self.number, token, pips)
        self.sixes = self.sixes + 1 if pips == 6 else 0
        if 0 < self.sixes < 3:
            return self.number
        self.sixes = 0
        return 1 - self.number

    def watch(self) -> int:
        parcel = torch.zeros(2, dtype=torch.int64, device="cuda")
        dist.recv(parcel, src=1 - self.number)
        token, pips = parcel.tolist()
        self.board.advance(1 - self.number, token, pips)
        return 1 - self.number if pips == 6 else self.number

    def learn(self) -> None:
        x = torch.tensor([self.board.features(self.number)], device="cuda")
        self.value.zero_grad()
        self.value(x).pow(2).mean().backward()
        with torch.no_grad():
            for p in self.value.parameters():
                p.add_(p.grad, alpha=-0.01)


def run(plies: int = 400) -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    seat = Seat(dist.get_rank())
    turn = 0
    for ply in range(plies):
        turn = seat.play(ply) if turn == seat.number else seat.watch()
        seat.learn()
        if ply % 10 == 0:
            print(f"seat {seat.number} ply {ply}: {seat.board.tokens[seat.number]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
