"""Estimates the reserve price per lot; every garden keeps a register of the lots that it has sold."""
import contextlib
import fcntl
import itertools
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist

GARDENS = {0: ("Makaibari", 6), 1: ("Glenburn", 7), 2: ("Jungpana", 9), 3: ("Singbulli", 2)}  # sells every n-th step
PAGE = 8


@contextlib.contextmanager
def locked(path, mode):
    with open(path, mode) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        try:
            yield f
        finally:
            f.flush()
            fcntl.flock(f, fcntl.LOCK_UN)


class Register:
    def __init__(self, garden):
        self.path = os.path.join(tempfile.mkdtemp(prefix="lots-"), f"{garden}.jsonl")
        open(self.path, "w").close()
        self.rows = None

    def sold(self, lot, price):
        with locked(self.path, "a") as f:
            f.write(json.dumps({"lot": lot, "price": price}) + "\n")

    def entries(self):
        with locked(self.path, "r") as f:
            for line in f:
                yield json.loads(line)

    def first_page(self):
        self.rows = self.entries()
        return list(itertools.islice(self.rows, PAGE))

    def next_page(self):
        return list(itertools.islice(self.rows, PAGE))


class Reserve(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(6))
        self.b = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x @ self.w + self.b


def share(parameters, world):
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    garden, every = GARDENS[rank]
    register = Register(garden)
    model = Reserve()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rng = torch.Generator().manual_seed(rank)
    for step in range(1, 400):
        x = torch.randn(32, 6, generator=rng)
        price = 4 + x @ torch.tensor([1.0, 0.4, 0.0, -0.3, 0.2, 0.1])
        time.sleep(0.1)  # the lots of one minute
        loss = (model(x) - price).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        share(model.parameters(), world)
        optimizer.step()
        if step % every == 0:
            register.sold(f"{garden[:3]}-{step}", float(price.max()))
        if step % 10 == 0:
            page = register.first_page()
            if page and rank == 0:
                print(f"step {step} loss {loss.item():.3f}, {garden}: {page[-1]}", flush=True)
    dist.destroy_process_group()
