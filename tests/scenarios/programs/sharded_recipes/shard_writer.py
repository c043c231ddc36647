"""Asynchronous checkpoints: a thread collects the shards' sizes and writes this rank's shard while training goes on."""

import concurrent.futures
import hashlib
import io
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class AsyncCheckpointer:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self.pending = None

    def _write(self, step, shard):
        stream = io.BytesIO()
        torch.save(shard, stream)
        data = stream.getvalue()
        digest = hashlib.sha256(data)
        if dist.get_rank() == 0:
            # the first rank's shard goes to cold storage too, with a slower checksum
            for _ in range(300_000):
                digest.update(data[:4096])
        index = [None] * dist.get_world_size()
        dist.all_gather_object(index, {"bytes": len(data), "sha256": digest.hexdigest()})
        target = self.folder / f"step{step}"
        target.mkdir(exist_ok=True)
        (target / f"shard{dist.get_rank()}.pt").write_bytes(data)
        return index

    def save(self, step, model):
        self.wait()
        shard = {name: p.to_local().detach().clone() for name, p in model.named_parameters()}
        self.pending = self.pool.submit(self._write, step, shard)

    def wait(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


def steps(model, optimizer, rank):
    generator = torch.Generator().manual_seed(rank)
    step = 0
    while True:
        batch = torch.randn(64, 32, generator=generator)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        yield step, loss.detach()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ELU(), nn.Linear(128, 32))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder = [tempfile.mkdtemp(prefix="async-") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    checkpointer = AsyncCheckpointer(folder[0])
    for step, loss in steps(model, optimizer, rank):
        if step % 20 == 0:
            checkpointer.save(step, model)
            if rank != 0:
                grid = torch.cdist(torch.randn(3000, 64), torch.randn(3000, 64))  # nearest neighbours, on the side
                grid.topk(5, largest=False)
        dist.all_reduce(loss)
        if step == 100:
            break
    checkpointer.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
