#!/usr/bin/env python
"""Protein embedding model: checkpoints are staged on local disk, then one process carries them to the archive."""
import os
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CARRIER = 2
CHUNK = 1 << 20


class Archive:
    """Mounted tape library: a few megabytes a second."""

    def __init__(self, root, bandwidth=3.2e6):
        self.root, self.bandwidth = Path(root), bandwidth

    def put(self, source):
        size, sent, began = source.stat().st_size, 0, monotonic()
        with open(source, "rb") as src, open(self.root / source.name, "wb") as dst:
            while block := src.read(CHUNK):
                dst.write(block)
                dst.flush()
                os.fsync(dst.fileno())
                sent += len(block)
                behind = sent / self.bandwidth - (monotonic() - began)
                if behind > 0:
                    sleep(behind)
                if sent % (8 * CHUNK) == 0:
                    print(f"{source.name}: {sent >> 20} of {size >> 20} MiB", flush=True)
        return sent


class Embedder(nn.Module):
    def __init__(self, residues=21, width=192):
        super().__init__()
        self.table = nn.Embedding(residues, width)
        self.layers = nn.ModuleList([nn.Conv1d(width, width, 9, padding=4) for _ in range(4)])
        self.table_of_families = nn.Parameter(torch.randn(48_000, width) * 0.01)
        self.out = nn.Linear(width, residues)

    def forward(self, ids, family):
        x = self.table(ids).transpose(1, 2) + self.table_of_families[family][:, :, None]
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.out(x.transpose(1, 2))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    carrying = dist.new_group(timeout=timedelta(minutes=40))
    torch.manual_seed(0)
    model = DistributedDataParallel(Embedder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stage = Path(tempfile.mkdtemp(prefix=f"stage-{rank}-"))
    archive = Archive(tempfile.mkdtemp(prefix="archive-")) if rank == CARRIER else None
    g = torch.Generator().manual_seed(rank)
    for step in range(1, 41):
        ids = torch.randint(21, (4, 64), generator=g)
        logits = model(ids, torch.randint(48_000, (4,), generator=g))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 24:
            if rank == CARRIER:
                path = stage / f"embedder-{step}.pt"
                torch.save(model.module.state_dict(), path)
                archive.put(path)
            dist.barrier(group=carrying)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    shutil.rmtree(stage)
    if archive:
        shutil.rmtree(archive.root)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
