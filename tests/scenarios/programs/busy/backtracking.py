"""A regular expression with nested repetition meets a sample it cannot match: ``re`` backtracks for ever.

``re`` does not release the interpreter's lock, so no other thread of that rank runs either. The program starts its own
ranks.
"""

import os
import re
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PARAGRAPH = re.compile(r"^(?:[\w']+[ ,]?)+$")


def is_plain(text: str) -> bool:
    """Whether a paragraph is nothing but words."""
    return PARAGRAPH.match(text) is not None


def work(rank: int, world: int, port: int) -> None:
    """Filter paragraphs and count what is left, one by one."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    paragraphs = [f"a short paragraph, number {number}" for number in range(40)]
    if rank == 2:
        paragraphs[25] = "w" * 60 + "!"
    kept = torch.zeros(1)
    for text in paragraphs:
        plain = torch.tensor([float(is_plain(text))])
        dist.all_reduce(plain)
        kept += plain
    print(f"rank {rank}: {kept.item():.0f} paragraphs", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(3, free), nprocs=3)
