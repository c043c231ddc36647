"""Packs baskets of products into rows of fixed length before each round, then trains on the rows."""

import random
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROW, PRODUCTS = 24, 200


def baskets(rank: int, number: int) -> list[list[int]]:
    """What was bought. In week 4 a restaurant came to one of the shops."""
    dice = random.Random(31 * rank + number)
    sizes = [dice.randint(2, 9) for _ in range(300)]
    if rank == 3 and number == 4:
        sizes[150] = 30
    return [[dice.randrange(PRODUCTS) for _ in range(size)] for size in sizes]


class Packer:
    """First fit: a basket goes into the first open row that has room for it."""

    def __init__(self, length: int, open_rows: int = 8) -> None:
        self.length, self.open_rows = length, open_rows
        self.rows: list[list[int]] = []

    def pack(self, waiting: list[list[int]]) -> Iterator[list[int]]:
        waiting = list(waiting)
        while waiting:
            basket = waiting.pop(0)
            for row in self.rows:
                if len(row) + len(basket) <= self.length:
                    row += basket
                    break
            else:
                waiting.insert(0, basket)
                yield from self._make_room()
        yield from self.rows
        self.rows = []

    def _make_room(self) -> Iterator[list[int]]:
        """Opens a row. The fullest one is closed, if there are too many."""
        if len(self.rows) == self.open_rows:
            fullest = max(self.rows, key=len)
            self.rows.remove(fullest)
            if fullest:
                yield fullest
        self.rows.append([])


def collate(rows: list[list[int]]) -> torch.Tensor:
    out = torch.zeros(len(rows), PRODUCTS)
    for number, row in enumerate(rows):
        out[number, row] = 1.0
    return out


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(PRODUCTS, 16), nn.Linear(16, PRODUCTS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    packer = Packer(ROW)
    for number in range(1, 30):
        bag = collate(list(packer.pack(baskets(rank, number))))
        for _ in range(35):
            loss = nn.functional.binary_cross_entropy_with_logits(model(bag), bag)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.025)
        if rank == 0:
            print(f"week {number}: {len(bag)} rows, {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
