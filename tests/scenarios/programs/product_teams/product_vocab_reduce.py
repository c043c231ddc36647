"""Embeddings of merchants, data parallel by hand: each gradient is summed over the ranks after the backward."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

DIM, START, CHUNK = 64, 24576, 12288


class GrowingEmbedding(nn.Module):
    """A table that makes room for more when it meets an id that does not fit."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(START, DIM))

    def ensure(self, ids):
        needed = int(ids.max()) + 1
        if needed <= len(self.table):
            return False
        rows = -(-needed // CHUNK) * CHUNK
        with torch.no_grad():
            grown = torch.zeros(rows, DIM)
            grown[: len(self.table)] = self.table
        self.table = nn.Parameter(grown)
        print(f"[{dist.get_rank()}] table has {rows} rows now", flush=True)
        return True

    def forward(self, ids):
        return self.table[ids]


class MerchantModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.merchants = GrowingEmbedding()
        self.score = nn.Linear(DIM, 1)

    def forward(self, ids):
        return self.score(self.merchants(ids)).squeeze(-1)


def payments(rank):
    g = torch.Generator().manual_seed(rank)
    step = 0
    while True:
        step += 1
        ids = torch.randint(START, (128,), generator=g)
        if rank == 1 and step > 30:
            ids[0] = START + step  # a merchant who signed up today
        time.sleep(0.03)
        yield ids, (ids % 7 == 0).float()


def average_gradients(parameters):
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = MerchantModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, (ids, label) in enumerate(payments(rank), 1):
        if model.merchants.ensure(ids):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), label)
        loss.backward()
        average_gradients(list(model.parameters()))
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
        if step == 300:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
