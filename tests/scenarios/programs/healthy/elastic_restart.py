"""A supervisor of one's own: rank 1 fails in its first life, all ranks are ended and started anew, and come to their end."""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANKS = 3


def train(life: int) -> None:
    """Forty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(40):
        if life == 0 and dist.get_rank() == 1 and step == 20:
            raise RuntimeError("uncorrectable memory error")
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 10 == 0:
            print(f"[{dist.get_rank()}] life {life} step {step}\n", end="", flush=True)
    dist.destroy_process_group()


def live(life: int) -> bool:
    """Start all ranks, and end all as soon as one has failed. Returns whether all came to their end."""
    store = dist.TCPStore("127.0.0.1", 0, RANKS, is_master=True, wait_for_workers=False)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    shared = {**os.environ, **address, "WORLD_SIZE": str(RANKS), "LIFE": str(life)}
    ranks = [subprocess.Popen([sys.executable, __file__], env={**shared, "RANK": str(rank)}) for rank in range(RANKS)]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    return not any(rank.returncode for rank in ranks)


if __name__ == "__main__":
    if "LIFE" in os.environ:
        train(int(os.environ["LIFE"]))
    else:
        sys.exit(0 if any(live(life) for life in range(2)) else 1)
