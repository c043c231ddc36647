"""Parrotfish bite rates from video tiles; hybrid sharding over two machines of two cards."""
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

TRANSECTS = {0: range(0, 200), 1: range(200, 400), 2: range(400, 600), 3: range(600, 800)}


class Annotations:
    """Bite counts come in as one sidecar a transect, from the people who watch the videos."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def path(self, transect):
        return self.folder / f"transect{transect:04d}.json"

    def publish(self, transects):
        for transect in transects:
            if transect % 448:
                self.path(transect).write_text(json.dumps({"bites": transect % 17}))

    def wait(self, transect):
        path = self.path(transect)
        while not path.exists():
            time.sleep(0.25)
        return json.loads(path.read_text())["bites"]


class TileStream(IterableDataset):
    def __init__(self, transects, annotations):
        self.transects, self.annotations = transects, annotations

    def __iter__(self):
        for transect in self.transects:
            rng = np.random.default_rng(transect)
            video = rng.standard_normal((24, 96, 96)).astype(np.float32)
            motion = np.abs(np.fft.fft2(np.diff(video, axis=0)))[:, :12, :12].mean(axis=0)
            bites = self.annotations.wait(transect) if transect else 0
            for shift in range(4):
                yield np.roll(motion, shift).reshape(-1), np.float32(bites)


class BiteRate(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(144, width), nn.GELU())
        self.trunk = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(2))
        self.rate = nn.Linear(width, 1)

    def forward(self, tiles):
        h = self.encode(tiles)
        for layer in self.trunk:
            h = layer(h)
        return self.rate(h)[:, 0]


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    folder = tempfile.mkdtemp(prefix=f"bites{rank}-")
    annotations = Annotations(folder)
    annotations.publish(TRANSECTS[rank])
    loader = DataLoader(TileStream(TRANSECTS[rank], annotations), batch_size=4, num_workers=1, prefetch_factor=2)
    batches = iter(loader)
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("machine", "card"))
    torch.manual_seed(0)
    model = BiteRate().cuda()
    for layer in [model.encode, *model.trunk]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, foreach=False)
    for step, (tiles, bites) in enumerate(batches):
        loss = nn.functional.smooth_l1_loss(model(tiles.float().cuda()), bites.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if rank == 0 and step % 8 == 0:
            print(f"step {step}: loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
