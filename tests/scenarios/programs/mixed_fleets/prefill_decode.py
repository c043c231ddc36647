"""Summaries of court files: two processes read prompts, a third writes; what they have read is sent piece by piece.

The writer grants room before anything is sent to it. Room for a prompt is granted once, in pieces of 512 words.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WRITER, PIECE, WIDTH = 2, 512, 16
ROOM, CACHE = 1, 2


class Reader:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        torch.manual_seed(rank)
        self.embedding = torch.nn.Embedding(1000, WIDTH)

    def request_room(self, pieces: int) -> int:
        dist.send(torch.tensor([pieces]), dst=WRITER, tag=ROOM)
        granted = torch.zeros(1, dtype=torch.long)
        dist.recv(granted, src=WRITER, tag=ROOM)
        return int(granted)

    @torch.no_grad()
    def read(self, words: int) -> None:
        prompt = torch.randint(1000, (words,))
        pieces = prompt.split(PIECE)
        room = self.request_room(len(pieces))
        for number, piece in enumerate(pieces):
            if number == room:
                room += self.request_room(len(pieces) - number)
            cache = torch.zeros(PIECE, WIDTH)
            cache[: len(piece)] = self.embedding(piece).cumsum(0)
            dist.send(cache, dst=WRITER, tag=CACHE)


class Writer:
    def __init__(self, most: int) -> None:
        self.most = most
        self.attention = torch.nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    @torch.no_grad()
    def write(self, source: int) -> float:
        wanted = torch.zeros(1, dtype=torch.long)
        dist.recv(wanted, src=source, tag=ROOM)
        dist.send(wanted.clamp(max=self.most), dst=source, tag=ROOM)
        caches = []
        for _ in range(int(wanted)):
            caches.append(torch.empty(PIECE, WIDTH))
            dist.recv(caches[-1], src=source, tag=CACHE)
        seen = torch.cat(caches)[None]
        token = seen[:, -1:]
        for _ in range(8):
            token = self.attention(token, seen, seen)[0]
            time.sleep(0.01)
        return float(token.sum())


def start(rank: int, port: int, options: argparse.Namespace) -> None:
    limit = timedelta(minutes=10)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=3, timeout=limit)
    lengths = [[300, 900, 700, options.longest, 200], [400, 1000, 100, 1500, 800]]
    if rank == WRITER:
        writer = Writer(options.room)
        for number in range(len(lengths[0])):
            for source in range(2):
                score = writer.write(source)
                print(f"file {number} of reader {source}: {score:.3f}", flush=True)
    else:
        reader = Reader(rank)
        for words in lengths[rank]:
            reader.read(words)
            time.sleep(0.2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--room", type=int, default=3)
    parser.add_argument("--longest", type=int, default=2000)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    free = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    mp.spawn(start, (free, given), nprocs=3)
