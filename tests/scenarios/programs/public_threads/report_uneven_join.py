"""Uneven shards, trained under the join context: the rank with the long shard goes on with the others' shadows."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
SHARDS = {0: 30, 1: 34, 2: 60}


class Recordings(torch.utils.data.IterableDataset):
    """The recordings of one site; the last ones of the largest site are long, and are decoded slowly."""

    def __init__(self, site):
        self.site = site

    def __iter__(self):
        for index in range(SHARDS[self.site]):
            generator = torch.Generator().manual_seed(1000 * self.site + index)
            yield self.decode(torch.randn(8, 16, generator=generator), seconds=10.0 if index == 45 else 0.02)

    def decode(self, frames, seconds):
        ended = time.monotonic() + seconds
        smooth = frames
        while time.monotonic() < ended:
            smooth = 0.9 * smooth + 0.1 * frames.roll(1, 0)
        return smooth


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(Recordings(rank), batch_size=None)
    count = 0
    with model.join():
        for frames in loader:
            loss = (model(frames) - frames).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
            if count % 10 == 0:
                print(f"rank {rank}: {count} recordings, loss {loss.item():.4f}", flush=True)
    total = torch.tensor(count)
    dist.all_reduce(total)
    if rank == 0:
        print(f"{total.item()} recordings in all", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
