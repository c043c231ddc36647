"""Similarity screen over memory-mapped fingerprint shards. Starts its own processes; rounds meet at a store."""
import json
import mmap
import multiprocessing as mp
import os
import random
import socket
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

ROW = 256
WORLD = 3


class Shard:
    def __init__(self, path: str, rows: int, seed: int):
        self.path, self.rows = path, rows
        rng = random.Random(seed)
        with open(path, "wb") as sink:
            for _ in range(rows):
                sink.write(rng.randbytes(ROW))
        self.file = open(path, "r+b")
        self.view = mmap.mmap(self.file.fileno(), 0)
        self.retired = 0

    def retire(self, count: int, compact_above: float):
        """Marks rows as withdrawn; a shard with many of them gives its tail back to the volume."""
        self.retired += count
        if self.retired > compact_above * self.rows:
            keep = self.rows - self.retired
            os.truncate(self.path, keep * ROW)
            self.retired = 0

    def best(self, queries: list, start: int, count: int):
        top = (0, -1)
        for row in range(start, start + count):
            value = int.from_bytes(self.view[row * ROW : (row + 1) * ROW], "little")
            top = max(top, (max((value & query).bit_count() for query in queries), row))
        return top


def screen(rank: int, port: int, folder: str):
    store = dist.TCPStore("127.0.0.1", port, WORLD, is_master=rank == 0, timeout=timedelta(minutes=30))
    dist.init_process_group("gloo", store=dist.PrefixStore("job", store), rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    hits = dist.PrefixStore("hits", store)
    shard = Shard(os.path.join(folder, f"shard{rank}.fp"), rows=6000, seed=rank)
    weights, score = torch.zeros(8), 0
    for index in range(200):
        signal = torch.full((8,), float(score))
        dist.all_reduce(signal)
        weights = 0.9 * weights + 0.1 * signal / WORLD
        rng = random.Random(index)
        queries = [rng.getrandbits(8 * ROW) for _ in range(300)]
        score, row = shard.best(queries, start=(index * 150) % 6000, count=150)
        shard.retire(count=60 if rank == 1 else 4, compact_above=0.45)
        hits.set(f"{index}/{rank}", json.dumps([score, row, len(shard.view)]))
        board = [json.loads(hits.get(f"{index}/{peer}")) for peer in range(WORLD)]
        if rank == 0 and index % 10 == 0:
            print(f"round {index}: best {max(board)}, drift {weights.norm():.2f}", flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    context = mp.get_context("spawn")
    place, port = tempfile.mkdtemp(prefix="screen_"), free_port()
    workers = [context.Process(target=screen, args=(rank, port, place)) for rank in range(WORLD)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
