"""Trains a codex embedding and consolidates the processes' shards into one archive, block by block with checksums."""
import hashlib
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK = 1 << 16
log = logging.getLogger("codex")


class Codex(nn.Module):
    def __init__(self, titles=3000, width=64):
        super().__init__()
        self.titles = nn.EmbeddingBag(titles, width, mode="mean")
        self.classify = nn.Linear(width, 12)

    def forward(self, ids):
        return self.classify(self.titles(ids))


class Archive:
    """The archive accepts about 3 MB a second, and every block is followed by its checksum."""

    def __init__(self, path, rate=3_000_000):
        self.out = open(path, "wb")
        self.rate = rate
        self.written = 0

    def append(self, source):
        digest = hashlib.sha256()
        with open(source, "rb") as shard:
            while block := shard.read(BLOCK):
                digest.update(block)
                self.out.write(block + digest.digest())
                self.out.flush()
                self.written += len(block)
                time.sleep(len(block) / self.rate)

    def close(self):
        self.out.close()


def save_shard(folder, model, optimizer, rank):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
             "annotations": torch.randn(2_200_000, generator=torch.Generator().manual_seed(rank))}
    torch.save(state, folder / f"shard{rank}.pt")


def consolidate(folder, world):
    archive = Archive(folder / "codex.bin")
    for rank in range(world):
        archive.append(folder / f"shard{rank}.pt")
        log.info("consolidated shard %d of %d, %.1f MB", rank + 1, world, archive.written / 1e6)
    archive.close()


def epoch(model, optimizer, gen, batches=120):
    for _ in range(batches):
        ids = torch.randint(0, 3000, (64, 20), generator=gen)
        loss = F.cross_entropy(model(ids), ids[:, 0] % 12)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    place = [tempfile.mkdtemp(prefix="codex-") if rank == 0 else None]
    dist.broadcast_object_list(place, src=0)
    folder = Path(place[0])
    torch.manual_seed(15)
    model = DDP(Codex())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(rank)
    for number in range(4):
        loss = epoch(model, optimizer, gen)
        if rank == 0:
            log.info("epoch %d loss %.3f", number, loss)
        if number == 1:
            save_shard(folder, model, optimizer, rank)
            dist.barrier()
            if rank == 0:
                consolidate(folder, world)
            dist.barrier()
    log.info("rank %d done in %s", rank, os.path.basename(folder))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
