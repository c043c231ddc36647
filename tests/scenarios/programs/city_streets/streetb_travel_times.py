"""Travel time matrices by hour, learnt per area; snapshots of the store are written beside the training."""
import io
import os
import threading
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

AREAS = {
    "inner city": {0: 300_000, 1: 300_000, 2: 300_000, 3: 300_000},
    "western belt": {0: 300_000, 1: 400_000, 2: 300_000, 3: 300_000},
    "region": {0: 300_000, 1: 300_000, 2: 60_000_000, 3: 300_000},
}


class MatrixStore:
    """Minutes between cells, one byte each; new hours are merged at the start of an epoch."""

    def __init__(self, area, seed):
        self.plan = AREAS[area]
        self.rng = torch.Generator().manual_seed(seed)
        self.hours = {}

    def merge(self, epoch):
        pairs = self.plan.get(epoch, 0)
        if pairs:
            self.hours[epoch] = torch.randint(0, 40, (pairs,), dtype=torch.uint8, generator=self.rng)

    def batch(self, size=512):
        origin = torch.rand(size, 12, generator=self.rng)
        for _ in range(40):
            origin = torch.tanh(origin @ torch.rand(12, 12, generator=self.rng)) + origin * 0.1
        return origin, torch.rand(size, 1, generator=self.rng)


class SnapshotWriter:
    def __init__(self, rank, world, local):
        self.rank, self.world, self.local = rank, world, local
        self.thread = None
        self.catalogue = {}

    def save(self, epoch, hours):
        self.wait()
        self.thread = threading.Thread(target=self._write, args=(epoch, dict(hours)), name="snapshot", daemon=True)
        self.thread.start()

    def _write(self, epoch, hours):
        torch.cuda.set_device(self.local)
        buffer = io.BytesIO()
        torch.save(hours[epoch], buffer)
        packed = zlib.compress(buffer.getvalue(), 9)
        parts = [None] * self.world
        dist.all_gather_object(parts, {"rank": self.rank, "bytes": len(packed), "crc": zlib.crc32(packed)})
        self.catalogue[epoch] = parts

    def wait(self):
        if self.thread is not None:
            self.thread.join()


def plausibility(rng, rounds=40):
    """Rank and spread of sampled matrices, as the planners ask for them with every epoch."""
    spreads = []
    for _ in range(rounds):
        values = torch.linalg.svdvals(torch.rand(420, 420, generator=rng))
        spreads.append((values[0] / values[10]).item())
    return sum(spreads) / len(spreads)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    area = list(AREAS)[rank % len(AREAS)]
    store = MatrixStore(area, seed=rank)
    writer = SnapshotWriter(rank, world, local)
    torch.manual_seed(17)
    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1)).to("cuda")
    model = DDP(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    for epoch in range(4):
        store.merge(epoch)
        for _ in range(10):
            pairs, minutes = store.batch()
            loss = nn.functional.mse_loss(model(pairs.cuda()), minutes.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        last = loss.item()
        writer.save(epoch, store.hours)
        spread = plausibility(store.rng)
        dist.barrier()
        print(f"{area}: epoch {epoch}, loss {last:.3g}, spread {spread:.1f}", flush=True)
    writer.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
