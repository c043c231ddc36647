"""Retrieval-augmented training. Neighbours come from an index that a thread refreshes while loaders read it."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class NeighbourIndex:
    def __init__(self, size, slow):
        self.lock, self.table, self.slow = threading.Lock(), torch.randint(0, size, (size, 4)), slow

    def refresh(self):
        with self.lock:
            fresh = torch.randint(0, len(self.table), self.table.shape)
            for _ in range(self.slow):  # shards are merged one by one
                time.sleep(0.1)
            self.table = fresh

    def lookup(self, index):
        with self.lock:
            return self.table[index]


class Passages(Dataset):
    def __init__(self, index, size=256):
        self.vectors, self.index = torch.randn(size, 24), index

    def __len__(self):
        return len(self.vectors)

    def __getitem__(self, i):
        return torch.cat([self.vectors[i], self.vectors[self.index.lookup(i)].mean(0)])


class Schedule:
    """Refreshes the index in the background at the end of an epoch."""

    def __init__(self, index):
        self.index, self.thread = index, None

    def on_epoch_end(self, epoch):
        if self.thread is not None:
            self.thread.join()
        self.thread = threading.Thread(target=self.index.refresh, name="refresh", daemon=True)
        self.thread.start()
        time.sleep(0.3)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    index = NeighbourIndex(256, slow=25 if rank == 1 else 0)
    loader = DataLoader(Passages(index), batch_size=16, num_workers=1, multiprocessing_context="fork")
    model = DistributedDataParallel(nn.Linear(48, 24))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = Schedule(index)
    for epoch in range(12):
        for x in loader:
            loss = (model(x) - x[:, :24]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.15)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
        schedule.on_epoch_end(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
