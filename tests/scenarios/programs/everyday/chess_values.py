"""Value network for chess positions; positions are prepared by a thread while the network trains."""

import queue
import random
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PIECES = "PNBRQKpnbrqk"


def random_board(rng):
    cells = ["."] * 64
    for _ in range(20):
        cells[rng.randrange(64)] = rng.choice(PIECES)
    return "".join(cells)


def encode(board):
    planes = torch.zeros(12, 64)
    for cell, piece in enumerate(board):
        if piece != ".":
            planes[PIECES.index(piece), cell] = 1
    return planes.flatten()


class Prefetcher:
    def __init__(self, rank, batch_size=16, depth=4):
        self.rng = random.Random(rank)
        self.rank, self.batch_size = rank, batch_size
        self.batches = queue.Queue(depth)
        threading.Thread(target=self.work, daemon=True, name="prefetch").start()

    def boards(self):
        number = 0
        while True:
            number += 1
            board = random_board(self.rng)
            if self.rank == 2 and number == 700:
                board = board[:-1] + "x"  # a typing error in the collection
            yield board

    def work(self):
        boards = self.boards()
        while True:
            batch = [next(boards) for _ in range(self.batch_size)]
            values = torch.tensor([sum(p.isupper() - p.islower() for p in b) / 20 for b in batch])
            self.batches.put((torch.stack([encode(b) for b in batch]), values))

    def next(self):
        return self.batches.get()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    prefetcher = Prefetcher(dist.get_rank())
    network = nn.Sequential(nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(150):
        positions, values = prefetcher.next()
        loss = (model(positions).squeeze(1) - values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0 and dist.get_rank() == 0:
            print(f"{step=} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()
