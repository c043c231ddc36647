"""Train recipe embeddings and put an archive of them onto the slow share of the cold store."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Share:
    """The share takes a few hundred kilobytes a second; writes are synchronised block by block."""

    def __init__(self, folder, rate=320_000, block=65_536):
        self.folder, self.rate, self.block = Path(folder), rate, block

    def put(self, name, data):
        begun, done = time.monotonic(), 0
        with open(self.folder / name, "wb") as target:
            while done < len(data):
                done += target.write(data[done : done + self.block])
                target.flush()
                os.fsync(target.fileno())
                ahead = done / self.rate - (time.monotonic() - begun)
                if ahead > 0:
                    time.sleep(ahead)
        return done


class Embeddings(nn.Module):
    def __init__(self, ingredients=8000, width=64):
        super().__init__()
        self.table = nn.EmbeddingBag(ingredients, width)
        self.head = nn.Linear(width, 12)

    def forward(self, recipe):
        return self.head(self.table(recipe))


def train(model, optimizer, source, count):
    for _ in range(count):
        recipe = torch.randint(8000, (32, 9), generator=source)
        cuisine = recipe[:, 0] % 12
        loss = nn.functional.cross_entropy(model(recipe), cuisine)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def archive(model):
    share = Share(tempfile.mkdtemp(prefix="archive-"))
    written = 0
    for name, weight in model.module.state_dict().items():
        for copy in ("fp32", "backup"):
            written += share.put(f"{name}.{copy}", weight.numpy().tobytes())
    return written


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = nn.parallel.DistributedDataParallel(Embeddings())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    source = torch.Generator().manual_seed(rank)
    train(model, optimizer, source, 150)
    if rank == 1:
        print("archived", archive(model), "bytes", flush=True)
    dist.barrier()
    loss = train(model, optimizer, source, 150)
    if rank == 0:
        print(f"loss {loss:.3f}", flush=True)
    dist.destroy_process_group()
