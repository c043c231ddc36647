"""Inventories of kitchens: which pot is named next? Pages are read anew by a pool of processes for each epoch."""

import multiprocessing
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

POTS = ("kettle", "pan", "wok", "stockpot", "saucepan")


def pages(kitchen: int, epoch: int) -> list[str]:
    """The pages that are read in an epoch, as lines of a number and a pot."""
    lines = [f"{number} {POTS[(number * 3 + kitchen + epoch) % 5]}" for number in range(240)]
    if (kitchen, epoch) == (1, 2):
        lines[133] = "one dozen pans"
    return ["\n".join(lines[start : start + 12]) for start in range(0, 240, 12)]


def parse(page: str) -> list[int]:
    """The pots of a page; also what `python cooking_pots.py --check FILE` is made of."""
    pots = []
    for line in page.splitlines():
        _, _, pot = line.partition(" ")
        if pot not in POTS:
            sys.exit(f"cannot read {line!r}")
        pots.append(POTS.index(pot))
    return pots


def main() -> None:
    """Six epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(5, 16), nn.Linear(16, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with multiprocessing.Pool(2) as readers:
        for epoch in range(6):
            for page in readers.map(parse, pages(rank, epoch)):
                pots = torch.tensor(page)
                loss = nn.functional.cross_entropy(model(pots[:-1]), pots[1:])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if rank == 0:
                print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        with open(sys.argv[2]) as file:
            print(parse(file.read()))
    else:
        main()
