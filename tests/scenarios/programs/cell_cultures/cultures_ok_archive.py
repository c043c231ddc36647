"""Embeds images of a screen, gathers the embeddings on rank 0, and writes them to an archive that is flushed block by block."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Archive:
    """A file on the slow share of the institute: written in blocks, each on disk before the next."""

    BLOCK = 1 << 17

    def __init__(self, path):
        self.path = path

    def write(self, tensor, repeat):
        payload = tensor.numpy().tobytes() * repeat
        with open(self.path, "wb") as file:
            for start in range(0, len(payload), self.BLOCK):
                file.write(payload[start : start + self.BLOCK])
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.06)
        return os.path.getsize(self.path)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    encoder = DistributedDataParallel(nn.Sequential(nn.Linear(80, 64), nn.Tanh()))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    images = [torch.rand(16, 80, generator=generator) for _ in range(50)]
    for batch in images:
        time.sleep(0.04)
        loss = -encoder(batch).std(0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        mine = torch.cat([encoder.module(batch) for batch in images])
    everyone = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(everyone, mine)
    if rank == 0:
        path = os.path.join(tempfile.gettempdir(), f"screen-{os.environ['MASTER_PORT']}.bin")
        size = Archive(path).write(torch.cat(everyone), repeat=30)
        print(f"{size >> 20} MB in the archive", flush=True)
    dist.barrier()
    total = torch.tensor([loss.item()])
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
