"""Downloads its part of the index into a node-local cache under a file lock, with retries; then trains from it."""
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.file_baton import FileBaton

CACHE = Path(f"/tmp/night-cache-{os.environ.get('MASTER_PORT', '0')}")
FLAKY = {(1, 2)}


class Bucket:
    """A stand-in for an object store, which drops a connection now and then."""

    def __init__(self):
        self.dropped = set()

    def get(self, rank, shard):
        time.sleep(0.1)
        if (rank, shard) in FLAKY and (rank, shard) not in self.dropped:
            self.dropped.add((rank, shard))
            raise ConnectionError(f"shard {shard}: connection reset")
        return {"seed": 1000 * rank + shard, "rows": 64}


class ShardCache:
    def __init__(self, rank, bucket):
        self.rank, self.bucket = rank, bucket
        CACHE.mkdir(exist_ok=True)

    def fetch(self, shard):
        target = CACHE / f"{self.rank}-{shard}.json"
        baton = FileBaton(str(target) + ".lock")
        if not baton.try_acquire():
            baton.wait()
            return json.loads(target.read_text())
        if not target.exists():
            target.write_text(json.dumps(self.bucket.get(self.rank, shard)))
        baton.release()
        return json.loads(target.read_text())


def with_retries(function, *arguments, attempts=5):
    for attempt in range(attempts):
        try:
            return function(*arguments)
        except ConnectionError as error:
            print(f"attempt {attempt}: {error}", flush=True)
            time.sleep(0.2 * 2**attempt)
    raise RuntimeError("giving up")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = ShardCache(rank, Bucket())
    model = DDP(nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for shard in range(40):
        index = with_retries(cache.fetch, shard)
        rows = torch.randn(index["rows"], 10, generator=torch.Generator().manual_seed(index["seed"]))
        for x in rows.split(8):
            loss = (model(x).squeeze(1) - x.mean(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        print(f"rank {rank} shard {shard} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
