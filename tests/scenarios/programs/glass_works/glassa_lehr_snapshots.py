"""Surrogate of an annealing lehr (strain over the belt), with snapshots written behind the training."""

import gzip
import json
import lzma
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Snapshots:
    """Each rank writes its zone's strain field; rank 0 keeps the index with everybody's sizes."""

    def __init__(self, folder, local):
        self.folder, self.local = Path(folder), local
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self.pending = []

    def submit(self, step, field):
        self.pending.append(self.pool.submit(self._write, step, field))

    def _write(self, step, field):
        torch.cuda.set_device(self.local)
        packed = lzma.compress(field.tobytes(), preset=1)
        (self.folder / f"zone{self.local}-{step:04d}.xz").write_bytes(packed)
        sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64, device="cuda")
        dist.all_gather_into_tensor(sizes, torch.tensor([len(packed)], device="cuda"))
        parts = sizes.tolist()
        if self.local == 0:
            with open(self.folder / "index.jsonl", "a") as index:
                index.write(json.dumps({"step": step, "bytes": parts}) + "\n")

    def close(self):
        for future in self.pending:
            future.result()
        self.pool.shutdown()


class Lehr:
    def __init__(self, zone):
        self.zone = zone
        self.rng = np.random.default_rng(zone)
        self.points = 4096

    def step(self, number):
        if self.zone == 1 and number == 30:
            self.points *= 1024  # finer grid where the strain point is passed
        load = self.rng.normal(0.0, 1.0, (384, 4096))
        np.fft.rfft(load, axis=1)
        return load[:16, :32].astype(np.float32), load[:16, 32:36].astype(np.float32)

    def field(self):
        return self.rng.random(self.points, dtype=np.float32)


def roll_logs(lines):
    """Packs the log lines since the last snapshot."""
    text = "\n".join(lines * 400).encode()
    for level in (6, 7, 8, 9):
        gzip.compress(text + os.urandom(4_000_000), level)
    lines.clear()


def main():
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    folder = [mkdtemp(prefix="lehr-") if local == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    lehr, snapshots, lines = Lehr(local), Snapshots(folder[0], local), []
    for step in range(1, 121):
        x, y = lehr.step(step)
        loss = nn.functional.l1_loss(model(torch.from_numpy(x).cuda()), torch.from_numpy(y).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(f"{step} {loss.item():.5f} {float(np.abs(y).mean()):.5f}")
        if step % 20 == 0:
            snapshots.submit(step, lehr.field())
            roll_logs(lines)
            dist.barrier(device_ids=[local])
            if local == 0:
                print(f"snapshot {step}", flush=True)
    snapshots.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
