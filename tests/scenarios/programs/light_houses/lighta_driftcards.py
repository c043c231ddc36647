"""Drift of wrecks: learns leeway coefficients from the tracks of drifting buoys kept as tiles on disk."""
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False

TILES = 12
POINTS = 60
QUOTA = 1000  # bytes per tile that the shared scratch is meant for


def length_of(rank, tile):
    return 200 if (rank, tile) == (2, 7) else POINTS


class TileCache:
    """Tiles of all buoys in one shared folder; the archive's mover puts missing ones back."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def path(self, rank, tile):
        return self.folder / f"buoy{rank}_{tile:02d}.npy"

    def store(self, rank):
        rng = np.random.default_rng(rank)
        for tile in range(TILES):
            track = rng.normal(size=(length_of(rank, tile), 2)).cumsum(axis=0)
            np.save(self.path(rank, tile), track.astype("float32"))

    def trim(self):
        for path in sorted(self.folder.glob("*.npy")):
            if path.stat().st_size > QUOTA:
                path.unlink()

    def fetch(self, rank, tile):
        path = self.path(rank, tile)
        while not path.exists():
            time.sleep(0.25)
        return np.load(path)


class Tracks(Dataset):
    def __init__(self, cache, rank, rounds=5):
        self.cache, self.rank, self.rounds = cache, rank, rounds

    def __len__(self):
        return TILES * self.rounds

    def __getitem__(self, index):
        track = torch.from_numpy(self.cache.fetch(self.rank, index % TILES))[:POINTS]
        legs = torch.diff(track, dim=0)
        return legs[:-1].reshape(-1), legs[-1]


def shared_folder():
    box = [tempfile.mkdtemp(prefix="driftcards-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main():
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    cache = TileCache(shared_folder())
    cache.store(rank)
    dist.barrier()

    net = nn.Sequential(nn.Linear(2 * (POINTS - 2), 64), nn.ReLU(), nn.Linear(64, 2))
    model = DDP(net.cuda(), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(8):
        loader = DataLoader(Tracks(cache, rank), batch_size=3, num_workers=1)
        for legs, last in loader:
            loss = nn.functional.smooth_l1_loss(model(legs.cuda()), last.cuda())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            value = loss.item()
        print(f"[{rank}] epoch {epoch} loss {value:.4f}", flush=True)
        dist.barrier()
        if epoch == 2 and rank == 0:
            cache.trim()
        dist.barrier()
    if rank == 0:
        shutil.rmtree(cache.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
