"""Reads its data from a store that refuses now and then; whoever is refused tries again, after longer and longer pauses."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Refused(ConnectionError):
    pass


class ObjectStore:
    """Hands out parts. The second rank's part is being moved to another disk when it asks for it."""

    def __init__(self, rank):
        self.rank = rank
        self.back_at = None

    def get(self, part):
        if self.rank == 1 and part == 3:
            self.back_at = self.back_at or time.monotonic() + 8.0
            if time.monotonic() < self.back_at:
                raise Refused(f"part {part}: 503 slow down")
        generator = torch.Generator().manual_seed(100 * self.rank + part)
        return torch.randn(160, 11, generator=generator)


def patiently(get, part, attempts=8, first=0.5):
    chooser = random.Random(part)
    pause = first
    for attempt in range(attempts):
        try:
            return get(part)
        except Refused as error:
            if attempt == attempts - 1:
                raise
            print(f"{error}; again in {pause:.1f} s", flush=True)
            time.sleep(pause + chooser.random() / 10)
            pause *= 2
    raise AssertionError


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    store = ObjectStore(rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for part in range(6):
        rows = patiently(store.get, part)
        for batch in rows.split(16):
            loss = nn.functional.mse_loss(model(batch[:, :10]), batch[:, 10:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        if rank == 0:
            print(f"part {part}: {loss.item():.4f}", flush=True)
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
