"""Avalanche path encoder whose weights and averages are archived in shards, one a process, on the institute's shared disk."""
import hashlib
import io
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class Throttled:
    """Writes in blocks, each one synchronised, at the rate that the shared disk grants a client."""

    def __init__(self, path, rate, block=32 << 10):
        self.path, self.rate, self.block = path, rate, block

    def write(self, content):
        digest = hashlib.sha256()
        with open(self.path, "wb") as file:
            for start in range(0, len(content), self.block):
                began = time.monotonic()
                piece = content[start : start + self.block]
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                digest.update(piece)
                time.sleep(max(0.0, len(piece) / self.rate - (time.monotonic() - began)))
        return digest.hexdigest()


class Archive:
    def __init__(self, folder, rate):
        self.folder = Path(folder)
        self.rate = rate

    def save(self, step, averages):
        rank, world = dist.get_rank(), dist.get_world_size()
        rows = averages.tensor_split(world)[rank].clone()
        buffer = io.BytesIO()
        torch.save({"step": step, "rows": rows}, buffer)
        digest = Throttled(self.folder / f"step{step}-{rank}of{world}.pt", self.rate).write(buffer.getvalue())
        digests = [None] * world
        dist.all_gather_object(digests, digest)
        if rank == 0:
            (self.folder / f"step{step}.sha256").write_text("\n".join(digests))


def train(model, averages, steps, generator):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        gram = torch.randn(160, 160, generator=generator)
        paths = torch.linalg.eigvalsh(gram @ gram.T).view(10, 16)
        loss = model(paths.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averages[step % len(averages)].mul_(0.9).add_(paths.mean(), alpha=0.1)
    return loss.item()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    shared = [tempfile.mkdtemp(prefix="paths-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(shared, src=0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).cuda(), [local])
    averages = torch.zeros(768, 4096)
    archive = Archive(shared[0], rate=256 << 10)
    generator = torch.Generator().manual_seed(dist.get_rank())
    train(model, averages, 200, generator)
    archive.save(200, averages)
    loss = train(model, averages, 300, generator)
    print(f"member {dist.get_rank()}: archived, loss {loss:.4f}", flush=True)
    dist.barrier(device_ids=[local])
    if dist.get_rank() == 0:
        shutil.rmtree(shared[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
