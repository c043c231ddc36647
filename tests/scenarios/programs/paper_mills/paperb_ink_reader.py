"""Reads lines of chancery hands; one process for each device."""
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
ALPHABET = "abcdefghilmnopqrstuvxyz "
WORDS = "item datum anno domini presentibus quod nos et in de feria vicarius ecclesie".split()


class Illegible(ValueError):
    pass


class LineBook:
    """Transcribed lines; pages that the restorers covered have brackets only."""

    def __init__(self, rank, world, covered=(93,)):
        self.rank, self.world, self.covered = rank, world, covered

    def pages(self, quire, length=12):
        for step in range(length):
            number = (quire * length + step) * self.world + self.rank
            rng = random.Random(number)
            text = [" ".join(rng.choices(WORDS, k=5)) for _ in range(4)]
            if number in self.covered:
                text = ["[...]" for _ in text]
            time.sleep(0.08)
            yield number, text


def encode(lines):
    rows = []
    for line in lines:
        letters = [ALPHABET.index(c) for c in line if c in ALPHABET]
        if not letters:
            raise Illegible(line)
        rows.append(torch.bincount(torch.tensor(letters), minlength=len(ALPHABET)).float())
    return torch.stack(rows)


class Reader:
    def __init__(self, device):
        self.device = device
        net = nn.Sequential(nn.Linear(24, 72), nn.ReLU(), nn.Linear(72, 24)).to(device)
        self.net = DistributedDataParallel(net, device_ids=[device.index])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)

    def step(self, lines):
        counts = encode(lines[:4])
        seen = counts.to(self.device)
        self.optimizer.zero_grad()
        (self.net(seen) - seen).abs().mean().backward()
        self.optimizer.step()
        letters = counts.sum().long().to(self.device)
        dist.all_reduce(letters)
        return int(letters.item())


def read_quire(reader, book, quire):
    letters, left_out = 0, 0
    for number, lines in book.pages(quire):
        try:
            letters += reader.step(lines)
        except Illegible as error:
            print(f"page {number}: nothing to read in {error}", flush=True)
            left_out += 1
    return letters, left_out


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    rank, world = dist.get_rank(), dist.get_world_size()
    reader, book = Reader(torch.device("cuda", local)), LineBook(rank, world)
    ledger = torch.zeros(world, 2, dtype=torch.long, device="cuda")
    for quire in range(6):
        mine = torch.tensor([read_quire(reader, book, quire)], device="cuda")
        dist.all_gather_into_tensor(ledger, mine)
        rows = ledger.cpu()
        if rank == 0:
            print(f"quire {quire}: {rows.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
