"""Keyword spotting. After each epoch the main process renders test clips with a pool, for the listening panel."""

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

BUDGET = 64 * 2**20  # bytes that a renderer may use


def render(job):
    """Write one clip. A renderer that needs too much is ended, so that the trainer is not."""
    path, seconds = job
    if seconds * 16000 * 4 > BUDGET:
        os.kill(os.getpid(), 9)
    samples = np.sin(np.arange(int(seconds * 16000)) * 0.05).astype(np.float32)
    np.save(path, samples)
    return path


class Panel:
    def __init__(self, folder: Path, workers: int = 2):
        self.folder, self.workers = folder, workers
        folder.mkdir(exist_ok=True)

    def clips(self, epoch):
        lengths = [0.5, 1.0, 2.0, 0.7]
        if epoch == 1:
            lengths[2] = 3600.0  # a clip that was never cut
        return [(str(self.folder / f"{epoch}-{i}.npy"), length) for i, length in enumerate(lengths)]

    def export(self, epoch):
        with multiprocessing.Pool(self.workers) as pool:
            written = pool.map(render, self.clips(epoch), chunksize=1)
        print(f"epoch {epoch}: {len(written)} clips", flush=True)


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return self.net(x)


def train_epoch(model, optimizer, rank, epoch):
    g = torch.Generator().manual_seed(rank * 50 + epoch)
    for _ in range(20):
        x = torch.randn(32, 40, generator=g)
        time.sleep(0.03)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(-1))
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Spotter())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    panel = Panel(Path(tempfile.gettempdir(), f"panel-{os.environ['MASTER_PORT']}"))
    for epoch in range(5):
        loss = train_epoch(model, optimizer, rank, epoch)
        if rank == 0:
            print(f"epoch {epoch}: {loss:.4f}", flush=True)
            panel.export(epoch)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
