"""Ski jump hill: density of the air from masts on the hill, with a wind board that is refreshed in the background."""
import threading
import time

import torch
import torch.distributed as dist

MASTS = {0: ("take-off", 0.05), 1: ("knoll", 1.1), 2: ("outrun", 1.2)}  # name, seconds until the mast answers


class WindBoard(threading.Thread):
    """Asks the mast whenever it is told to and puts all answers on one board."""

    def __init__(self, rank: int):
        super().__init__(name="wind-board", daemon=True)
        self.mast, self.answers_after = MASTS[rank]
        self.wanted = threading.Event()
        self.board: list = []

    def ask(self) -> dict:
        time.sleep(self.answers_after)
        return {"mast": self.mast, "speed": round(2.0 + self.answers_after, 2), "at": time.time()}

    def run(self):
        while True:
            self.wanted.wait()
            self.wanted.clear()
            rows = [None] * dist.get_world_size()
            dist.all_gather_object(rows, self.ask())
            self.board = rows


def smooth_field(field: torch.Tensor, seconds: float) -> torch.Tensor:
    """Relaxes the field for as long as the jury's break allows."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        field = 0.5 * field + 0.125 * sum(field.roll(s, d) for s in (-1, 1) for d in (0, 1))
    return field


class AirDensity:
    def __init__(self):
        torch.manual_seed(4)
        self.theta = torch.zeros(8, requires_grad=True)

    def step(self, sample: torch.Tensor, lr: float = 0.02) -> float:
        loss = ((sample @ self.theta - sample.sum(dim=1)) ** 2).mean()
        loss.backward()
        gradient = self.theta.grad.clone()
        dist.all_reduce(gradient)
        with torch.no_grad():
            self.theta -= lr * gradient / dist.get_world_size()
        self.theta.grad = None
        return loss.item()


def jump(g: torch.Generator) -> torch.Tensor:
    flight = torch.randn(40, 150, 150, generator=g)
    for _ in range(3):
        flight = torch.tanh(torch.bmm(flight, flight) / 150)
    return flight[:, 0, :8] * 10


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    board = WindBoard(rank)
    board.start()
    model, g = AirDensity(), torch.Generator().manual_seed(60 + rank)
    field = torch.rand(120, 120, generator=g)
    for number in range(1, 241):
        loss = model.step(jump(g))
        if number % 60 == 0:  # end of a group of jumpers
            board.wanted.set()
            field = smooth_field(field, seconds=0.5)
        if number % 20 == 0 and rank == 0:
            print(f"jump {number}: {loss:.4f}, field {field.mean():.3f}, board {board.board}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
