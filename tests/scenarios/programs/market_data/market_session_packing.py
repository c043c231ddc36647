"""Next-item model on click sessions: sessions are streamed and packed into rows of equal length."""

import itertools
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ITEMS, ROW, BATCH = 64, 32, 4


def sessions(shop, epoch):
    """The click sessions of one shop; some shops have shorter ones."""
    rng = random.Random(f"{shop}/{epoch}")
    low, high = {0: (8, 20), 1: (4, 16), 2: (8, 20)}[shop]
    for _ in range(400):
        yield [rng.randrange(1, ITEMS) for _ in range(rng.randrange(low, high))]


def pack(stream):
    buffer = []
    for session in stream:
        buffer += [*session, 0]
        while len(buffer) > ROW:
            yield torch.tensor(buffer[: ROW + 1])
            buffer = buffer[ROW:]


def batches(rows):
    rows = iter(rows)
    while len(chunk := list(itertools.islice(rows, BATCH))) == BATCH:
        yield torch.stack(chunk)


class NextItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ITEMS, 16)
        self.mixer = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, ITEMS)

    def forward(self, rows):
        return self.head(self.mixer(self.embed(rows))[0])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(NextItem())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for step, rows in enumerate(batches(pack(sessions(rank, epoch)))):
            time.sleep(0.05)
            logits = model(rows[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        dist.barrier()
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
