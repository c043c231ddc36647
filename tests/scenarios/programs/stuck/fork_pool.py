"""A fork pool tokenises; its workers inherit the tokeniser's cache lock while a warm-up thread holds it.

The main thread waits for the pool's result for ever. The program starts its own ranks.
"""

import multiprocessing
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

CACHE: dict[str, int] = {}
CACHE_LOCK = threading.RLock()


def token_id(word: str) -> int:
    """The number of a word, new words are added."""
    with CACHE_LOCK:
        return CACHE.setdefault(word, len(CACHE))


def encode(text: str) -> list[int]:
    """The numbers of all words of a text."""
    return [token_id(word) for word in text.split()]


def warm_up(words: int) -> None:
    """Fill the cache."""
    with CACHE_LOCK:
        for number in range(words):
            CACHE[f"word{number}"] = number
            time.sleep(0.001)


def encode_all(texts: list[str]) -> list[list[int]]:
    """Encode in parallel."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(encode, texts)


def work(rank: int, world: int, port: int) -> None:
    """One rank."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.EmbeddingBag(4096, 4))
    if rank == 0:
        threading.Thread(target=warm_up, args=(2000,), daemon=True).start()
        time.sleep(0.1)
    encoded = encode_all([f"word{number} word{number + 1}" for number in range(32)])
    for row in encoded:
        model(torch.tensor([row])).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(2, free), nprocs=2, daemon=False)
