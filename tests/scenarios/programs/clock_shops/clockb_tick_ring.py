"""Train on tick recordings held in memory-mapped rings, one per station; starts a process per device."""
import mmap
import multiprocessing as mp
import os
import socket
import struct
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

RECORD = struct.Struct("<dddd")
PAGE = 4096
RING = 64 * PAGE
STATIONS = [("Romont", 1), ("Palézieux", 3), ("Vevey", 1)]  # name, dials


class TickRing:
    """Records are appended, and read back in windows; compact() keeps the file small."""

    def __init__(self, name, budget):
        self.path = os.path.join(tempfile.mkdtemp(prefix="ticks-"), f"{name}.ring")
        self.file = open(self.path, "w+b")
        self.file.truncate(RING)
        self.view = mmap.mmap(self.file.fileno(), RING)
        self.used, self.budget = 0, budget

    def append(self, values):
        if self.used + RECORD.size > RING:
            self.used = 0
        RECORD.pack_into(self.view, self.used, *values)
        self.used += RECORD.size

    def compact(self):
        if self.used < self.budget:
            return
        os.truncate(self.path, PAGE)

    def window(self, count):
        start = max(0, self.used - count * RECORD.size)
        raw = self.view[start:self.used]
        return [RECORD.unpack_from(raw, i) for i in range(0, len(raw), RECORD.size)]


def ticks(gen, dials):
    for dial in range(dials):
        drift, noise, temp = torch.randn(3, generator=gen).tolist()
        yield (float(dial), drift, noise, 20 + temp)


def work(local, world, station, dials):
    os.environ.update(RANK=str(local), LOCAL_RANK=str(local), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    gen = torch.Generator().manual_seed(local)
    ring = TickRing(station, budget=RING // 2)
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)).cuda()
    model = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(130):
        for _ in range(24):
            for tick in ticks(gen, dials):
                ring.append(tick)
        ring.compact()
        rows = torch.tensor(ring.window(24), dtype=torch.float32)
        spread = torch.randn(160_000, generator=gen).sort().values[::8000]
        x = (rows + spread.std()).cuda()
        loss = (model(x) - x[:, 1:2]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step % 20 == 0:
            print(f"{station}: step {step}, ring {ring.used // 1024} KiB", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    context = mp.get_context("spawn")
    world = len(STATIONS)
    workers = [context.Process(target=work, args=(i, world, *STATIONS[i])) for i in range(world)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
