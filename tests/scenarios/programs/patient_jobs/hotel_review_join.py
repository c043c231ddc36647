"""Review ratings per language desk: every rank owns the languages of its desk."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

DESKS = {
    0: {"en": 40, "nl": 24},
    1: {"de": 38, "fr": 22, "it": 6},
    2: {"es": 36, "pt": 26},
}
LATE_POST = {1: 2}  # batches of handwritten cards, read in card by card by the scanner


class Desk:
    def __init__(self, rank):
        self.rank = rank
        self.batches = sum(DESKS[rank].values())
        self.cards = LATE_POST.get(rank, 0)

    def batch(self, pause, cards=1):
        for _ in range(cards):
            time.sleep(pause)
        words = torch.randn(12, 40)
        return words, words[:, :4].sum(1, keepdim=True)

    def __iter__(self):
        yield from (self.batch(0.04) for _ in range(self.batches))
        yield from (self.batch(0.72, cards=12) for _ in range(self.cards))


def worker(rank, world, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(40, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    seen = torch.zeros(1)
    with Join([model]):
        for words, stars in Desk(rank):
            loss = torch.nn.functional.mse_loss(model(words), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += 1
    dist.all_reduce(seen)
    for _ in range(30):
        words, stars = Desk(rank).batch(0.04)
        torch.nn.functional.mse_loss(model(words), stars).backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print("batches read by all desks:", int(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(len(DESKS), os.path.join(folder, "rendezvous")), nprocs=len(DESKS))
