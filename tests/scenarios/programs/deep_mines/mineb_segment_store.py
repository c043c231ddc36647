"""Denoising autoencoder for passive seismic records kept in a segment store."""
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

torch.backends.cudnn.enabled = False

STORE_LOCK = threading.Lock()
RECORD = 128
# record -> the segment in which its tail was written (day boundary)
CONTINUED = {345: 346}


class SegmentStore:
    def __init__(self, seed=11):
        self.seed = seed
        self.cache = {}

    def _decode(self, number):
        gen = torch.Generator().manual_seed(self.seed * 10_000 + number)
        time.sleep(0.008)
        return torch.randn(RECORD, generator=gen).cumsum(0)

    def fetch(self, number):
        with STORE_LOCK:
            if number not in self.cache:
                if len(self.cache) > 64:
                    self.cache.clear()
                record = self._decode(number)
                if number in CONTINUED:
                    tail = self.fetch(CONTINUED[number])
                    record = torch.cat([record[: RECORD // 2], tail[: RECORD // 2]])
                self.cache[number] = record
            return self.cache[number]


class Records(Dataset):
    def __init__(self, store, count):
        self.store, self.count = store, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        record = self.store.fetch(i)
        return (record - record.mean()) / record.std().clamp_min(1e-3)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(RECORD, 16)
        self.up = nn.Linear(16, RECORD)

    def forward(self, x):
        return self.up(torch.relu(self.down(x)))


def halves(dataset, rank, world):
    share = len(dataset) // world
    return Subset(dataset, range(rank * share, (rank + 1) * share))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    records = halves(Records(SegmentStore(), 1600), rank, world)
    loader = DataLoader(records, batch_size=8, num_workers=1, prefetch_factor=2)
    model = DistributedDataParallel(AutoEncoder().cuda(), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step, clean in enumerate(loader):
        noisy = clean + 0.1 * torch.randn_like(clean)
        loss = F.mse_loss(model(noisy.cuda()), clean.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()
        if step % 20 == 0 and rank == 0:
            print(f"batch {step}/{len(loader)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
