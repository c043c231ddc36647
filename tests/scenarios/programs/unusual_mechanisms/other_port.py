"""Ranks are started from a table of nodes; one node's entry still has the rendezvous port of the job before.

The program starts its own ranks, and plays the port's old owner, which still listens but knows nothing of this job.
"""

import datetime
import os
import subprocess
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Node:
    """One line of the table."""

    name: str
    rank: int
    port: int


def table(world: int, port: int, old: int) -> list[Node]:
    """All nodes of the job."""
    return [Node(f"node{rank}", rank, old if rank == 2 else port) for rank in range(world)]


def launch(world: int) -> int:
    """Start a process for every node, and wait for all."""
    current = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    former = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    children = []
    for node in table(world, current.port, former.port):
        environment = {
            **os.environ,
            "RANK": str(node.rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(node.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "NODE_NAME": node.name,
        }
        children.append(subprocess.Popen([sys.executable, __file__, "train"], env=environment))
    return max(abs(child.wait()) for child in children)


def train() -> None:
    """One rank."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=2))
    ones = torch.ones(1)
    dist.all_reduce(ones)
    print(os.environ["NODE_NAME"], ones.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        sys.exit(launch(4))
