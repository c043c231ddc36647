"""After each epoch every rank lists its scratch files with a command, and waits for its end before it reads its output.

Where there are many files the output is larger than a pipe holds. The program starts its own ranks.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def scratch(rank: int) -> Path:
    """The scratch folder: one rank never cleaned up."""
    folder = Path(tempfile.mkdtemp())
    for number in range(2500 if rank == 3 else 5):
        (folder / f"activations-of-layer-twelve-{number:06}.bin").touch()
    return folder


def inventory(folder: Path) -> list[str]:
    """The files in a folder, as ``find`` has them."""
    listing = subprocess.Popen(["find", str(folder), "-type", "f"], stdout=subprocess.PIPE, text=True)
    if listing.wait() != 0:
        raise RuntimeError(f"find failed for {folder}")
    assert listing.stdout is not None
    return listing.stdout.read().splitlines()


def train(folder: Path) -> None:
    """Three epochs."""
    model = DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for _ in range(15):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        print(f"epoch {epoch}: {len(inventory(folder))} files", flush=True)


def launch(world: int) -> int:
    """Start the ranks and wait for all of them."""
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    shared = {**os.environ, "WORLD_SIZE": str(world), "STORE_PORT": str(store.port)}
    ranks = [subprocess.Popen([sys.executable, __file__], env={**shared, "RANK": str(r)}) for r in range(world)]
    return max(abs(process.wait()) for process in ranks)


def main() -> None:
    """One rank."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["STORE_PORT"]), None)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    train(scratch(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    if "STORE_PORT" in os.environ:
        main()
    else:
        sys.exit(launch(4))
