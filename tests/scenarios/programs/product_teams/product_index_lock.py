"""Semantic search: the encoder is trained, and the index of the passages is rebuilt under a lock of the host."""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


@contextlib.contextmanager
def host_lock(path: Path):
    """One process of this host at a time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.set_inheritable(descriptor, True)  # helpers of the holder may go on under the lock
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


class PassageIndex:
    def __init__(self, folder: Path, watch: bool):
        self.folder, self.watch, self.vectors = folder, watch, None
        self.viewer = None
        folder.mkdir(exist_ok=True)

    def rebuild(self, encoder, passages):
        with host_lock(self.folder / "lock"):
            with torch.no_grad():
                self.vectors = encoder(passages)
            torch.save(self.vectors, self.folder / "vectors.pt")
            with open(self.folder / "log", "a") as log:
                log.write(f"{len(self.vectors)} passages\n")
            if self.watch and self.viewer is None:
                # follows the log for the people of the index team
                self.viewer = subprocess.Popen(
                    ["tail", f"--pid={os.getpid()}", "-f", str(self.folder / "log")],
                    stdout=subprocess.DEVNULL,
                    close_fds=False,
                )

    def recall(self, encoder, queries):
        with torch.no_grad():
            found = (encoder(queries) @ self.vectors.T).argmax(-1)
        return (found == torch.arange(len(queries))).float().mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    encoder = DDP(nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 24)))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    folder = Path(tempfile.gettempdir(), f"index-{os.environ['MASTER_PORT']}-{rank}")
    index = PassageIndex(folder, watch=rank == 1)
    g = torch.Generator().manual_seed(rank)
    passages = torch.randn(128, 32, generator=g)
    for step in range(1, 601):
        rows = torch.randint(128, (32,), generator=g)
        query = passages[rows] + 0.3 * torch.randn(32, 32, generator=g)
        time.sleep(0.03)
        scores = encoder(query) @ encoder.module(passages[rows]).T
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(scores, torch.arange(32))
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            index.rebuild(encoder.module, passages)
            print(f"[{rank}] step {step}: recall {index.recall(encoder.module, passages):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
