"""Interval data of smart meters: rank 0 indexes the shards, then all train on what the index says."""
import argparse
import hashlib
import json
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist


def write_shards(folder, count, records):
    rng = np.random.default_rng(0)
    for s in range(count):
        lines = [json.dumps({"meter": int(m), "kwh": [round(float(v), 3) for v in row]})
                 for m, row in zip(rng.integers(0, 5000, records), rng.random((records, 24)))]
        (folder / f"shard{s:02d}.jsonl").write_text("\n".join(lines))


class Index:
    def __init__(self, folder):
        self.folder, self.offsets = folder, []

    def build(self, rounds):
        """Offsets of all records, under pseudonyms: the meters' numbers must not leave the utility."""
        for shard in sorted(self.folder.glob("*.jsonl")):
            at = 0
            for line in shard.read_text().split("\n"):
                record = json.loads(line)
                alias = hashlib.pbkdf2_hmac("sha256", str(record["meter"]).encode(), b"ami-2026", rounds)
                self.offsets.append((alias.hex()[:12], shard.name, at, zlib.crc32(line.encode()), sum(record["kwh"])))
                at += len(line) + 1
            print(f"indexed {shard.name}: {len(self.offsets)} records", flush=True)
        return len(self.offsets)


def train(rank, world, steps, tag):
    torch.manual_seed(0)
    net = torch.nn.Linear(24, 24)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.rand(512, 24, generator=gen)
        loss = (net(x) - x.roll(1, 1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        time.sleep(0.04)
    if rank == 0:
        print(f"{tag}: {loss.item():.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=1400)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train(rank, world, 50, "warm-up on the sample")
    with tempfile.TemporaryDirectory(prefix="ami-") as tmp:
        records = torch.zeros(1, dtype=torch.int64)
        if rank == 0:
            write_shards(Path(tmp), 12, 2500)
            records[0] = Index(Path(tmp)).build(args.rounds)
        dist.barrier()
        dist.broadcast(records, src=0)
    train(rank, world, 80, f"on {int(records)} records")
    dist.destroy_process_group()


main()
