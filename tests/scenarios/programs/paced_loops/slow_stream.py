"""Rank 0 reads a recording from a slow stream, 64 KB at a time; the others wait for what it has counted."""

import os
import threading
import time

import torch
import torch.distributed as dist

_CHUNK = 64 * 1024


def send(descriptor: int, chunks: int, pause: float) -> None:
    """The other end of the line."""
    with os.fdopen(descriptor, "wb", buffering=0) as line:
        for _ in range(chunks):
            line.write(bytes(_CHUNK))
            time.sleep(pause)


def count(line) -> int:
    """All bytes there are."""
    total = 0
    while True:
        block = line.read(_CHUNK)
        if not block:
            return total
        total += len(block)
        time.sleep(0.4)


def main() -> None:
    """A few steps, the recording, a few steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    length = torch.zeros(1)
    if dist.get_rank() == 0:
        reader, writer = os.pipe()
        threading.Thread(target=send, args=(writer, 45, 0.4), daemon=True).start()
        with os.fdopen(reader, "rb") as line:
            length += count(line)
    dist.broadcast(length, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
