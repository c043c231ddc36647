"""DDP with shards of different length under model.join()."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Shard:
    """Sentences of one file; the files were split by size, and long sentences are read more slowly."""

    def __init__(self, rank: int) -> None:
        self.batches = (24, 40, 52)[rank % 3]

    def __iter__(self):
        for n in range(self.batches):
            time.sleep(0.25 if n < 40 else 0.9)
            yield torch.rand(4, 40)


def main() -> None:
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 40)).to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    seen = 0
    with model.join():
        for batch in Shard(rank):
            batch = batch.to(device)
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += len(batch)
            if seen % 40 == 0:
                print(f"rank {rank}: {seen} sentences, loss {loss.item():.4f}", flush=True)
    total = torch.tensor([seen], device=device)
    dist.all_reduce(total)
    if rank == 0:
        print(f"{total.item()} sentences", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
