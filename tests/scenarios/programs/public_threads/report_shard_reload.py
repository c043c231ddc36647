"""Between epochs each rank reloads its shard on a thread; the shards are of unlike sizes, and are compressed."""

import os
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
BLOCKS = {0: 2, 1: 3, 2: 12}
LARGE = 6


def write_shard(path, blocks):
    generator = torch.Generator().manual_seed(blocks)
    with path.open("wb") as file:
        for _ in range(blocks):
            data = torch.randint(0, 40, (2**21,), generator=generator, dtype=torch.uint8).numpy().tobytes()
            packed = zlib.compress(data, 1)
            file.write(len(packed).to_bytes(8, "little") + packed)


def read_shard(path):
    """Every block is unpacked, and a large shard is packed better for the next time, if there is time for that."""
    rows, started = [], time.monotonic()
    with path.open("rb") as file:
        while header := file.read(8):
            data = zlib.decompress(file.read(int.from_bytes(header, "little")))
            while len(rows) == LARGE and time.monotonic() - started < 10.0:
                better = zlib.compress(data, 9)
                assert zlib.decompress(better) == data
            rows.append(torch.frombuffer(bytearray(data[:640]), dtype=torch.uint8).view(40, 16).float() / 40)
    return torch.cat(rows)[:40]


def train_epoch(model, optimizer, rows):
    for batch in rows.split(1):
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    path = Path(tempfile.gettempdir(), f"shard-{os.environ['MASTER_PORT']}-{rank}.bin")
    write_shard(path, BLOCKS[rank])
    rows = torch.rand(40, 16)
    with ThreadPoolExecutor(1) as pool:
        for epoch in range(2):
            loss = train_epoch(model, optimizer, rows)
            if epoch == 0:
                rows = pool.submit(read_shard, path).result()
            print(f"rank {rank} epoch {epoch} loss {loss:.4f}", flush=True)
    path.unlink()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
