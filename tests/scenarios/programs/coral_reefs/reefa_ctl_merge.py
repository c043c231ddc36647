"""Sea grass maps with FSDP2; after each season the sharded checkpoint is merged into one file for the web map."""
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

TILE_ROWS = 2048
SEASONS = 2


class GrassNet(nn.Module):
    def __init__(self, bands=64, width=128):
        super().__init__()
        self.bands = nn.Linear(bands, width)
        self.deep = nn.Linear(width, width)
        self.grass = nn.Linear(width, 1)

    def forward(self, x):
        return self.grass(torch.relu(self.deep(torch.relu(self.bands(x)))))


def publish(sharded, target, rows=TILE_ROWS, tiles=115):
    """One file, then the tiles of the map from it, each compressed by rank of its values and signed."""
    dcp_to_torch_save(sharded, target / "grass.pt")
    weights = torch.load(target / "grass.pt", weights_only=False)
    total = sum(v.numel() for v in weights.values())
    began = time.monotonic()
    with open(target / "tiles.bin", "wb") as f:
        for tile in range(tiles):
            rng = np.random.default_rng(tile)
            data = rng.standard_normal((rows, 512)).astype(np.float32)
            ranks = np.argsort(np.argsort(data, axis=0), axis=0).astype("<u2")
            f.write(hashlib.sha256(ranks.tobytes()).digest() + ranks.tobytes())
            f.flush()
            os.fsync(f.fileno())
            if tile % 23 == 22:
                print(f"  tile {tile + 1}/{tiles}, {f.tell() >> 20} MiB, {time.monotonic() - began:.1f} s", flush=True)
    return total


def season(model, optimizer, rng, steps):
    for _ in range(steps):
        scene = rng.standard_normal((64, 64, 256)).astype(np.float32)
        x = np.abs(np.fft.rfft(scene, axis=-1)).mean(axis=-1)
        loss = model(torch.from_numpy(x).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    where = [tempfile.mkdtemp(prefix="grass-") if rank == 0 else None]
    dist.broadcast_object_list(where, device=torch.device("cuda"))
    model = GrassNet().cuda()
    for layer in (model.bands, model.deep):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    rng = np.random.default_rng(rank)
    for number in range(SEASONS):
        loss = season(model, optimizer, rng, 45)
        folder = Path(where[0]) / f"season{number}"
        dcp.save(get_model_state_dict(model), checkpoint_id=folder / "shards")
        if rank == 0:
            print(f"season {number} loss {loss:.4f}, publishing", flush=True)
            if number == 0:
                print(f"published {publish(folder / 'shards', folder)} weights", flush=True)
        dist.barrier()
    if rank == 0:
        print("seasons done", flush=True)
        shutil.rmtree(where[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
