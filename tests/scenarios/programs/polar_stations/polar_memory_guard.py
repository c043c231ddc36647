"""Snow grain classifier. The machine in the container has little memory: a guard ends what takes too much of it."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

LIMIT = 96 * 2**20  # bytes of samples that one process may keep
GRAIN = 28 * 28


class Store:
    """Samples in memory, and their size."""

    def __init__(self):
        self.samples, self.bytes = [], 0

    def add(self, batch):
        self.samples.append(batch)
        self.bytes += batch.numel() * batch.element_size()


def guard(store):
    """In the way of the kernel's own: no questions asked."""
    while store.bytes < LIMIT:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def pits(rank, steps):
    """Snow pits of this rank's transect; on the third one every grain was photographed from all sides."""
    views = 96 if rank == 2 else 4
    for step in range(steps):
        yield torch.rand(8 * views, GRAIN), step


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(GRAIN, 32), nn.ReLU(), nn.Linear(32, 9)).to(device), device_ids=[local]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    store = Store()
    threading.Thread(target=guard, args=(store,), daemon=True).start()
    done = torch.zeros((), device=device)
    for grains, step in pits(rank, 400):
        store.add(grains)
        batch = grains[:16].to(device)
        loss = model(batch).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if step % 10 == 0:
            print(f"rank {rank} step {done.item():.0f}: {store.bytes >> 20} MiB", flush=True)
        time.sleep(0.06)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
