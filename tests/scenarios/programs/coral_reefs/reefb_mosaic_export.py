"""Photogrammetry embeddings: train, then the main process renders and stores the orthomosaic pyramid."""
import contextlib
import json
import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
SETTINGS = {"tile": 512, "rows": 24, "cols": 13, "steps": 140, "lr": 1e-3, "tiles_per_s": 25}


@contextlib.contextmanager
def main_process_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


class Mosaic:
    """Tiles of the reef crest, blended from overlapping frames."""

    def __init__(self, folder, settings):
        self.folder, self.s = Path(folder), settings
        self.index = self.folder / "index.json"

    def render(self, row, col):
        rng = np.random.default_rng([row, col])
        frames = rng.integers(0, 255, (3, self.s["tile"], self.s["tile"]), dtype=np.uint8).astype(np.float32)
        weight = np.hanning(self.s["tile"])
        blended = (frames * weight * weight[:, None]).mean(axis=0)
        for axis in (0, 1):
            blended = 0.5 * blended + 0.25 * (np.roll(blended, 1, axis) + np.roll(blended, -1, axis))
        return blended.astype(np.uint8)

    def build(self):
        if self.index.exists():
            return json.loads(self.index.read_text())
        entries, began = {}, time.monotonic()
        for row in range(self.s["rows"]):
            for col in range(self.s["cols"]):
                blob = zlib.compress(self.render(row, col).tobytes(), 9)
                path = self.folder / f"{row:02d}_{col:02d}.z"
                with open(path, "wb") as f:
                    f.write(blob)
                    os.fsync(f.fileno())
                entries[path.name] = zlib.crc32(blob)
                due = began + len(entries) / self.s["tiles_per_s"]  # the share is mounted over the boat's link
                time.sleep(max(0.0, due - time.monotonic()))
            print(f"mosaic row {row + 1}/{self.s['rows']} stored", flush=True)
        self.index.write_text(json.dumps(entries))
        return entries


def train(rank):
    model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda())
    optim = torch.optim.AdamW(model.parameters(), lr=SETTINGS["lr"])
    rng = np.random.default_rng(rank)
    for step in range(SETTINGS["steps"]):
        frames = rng.standard_normal((10, 256, 256), dtype=np.float32)
        x = torch.from_numpy(np.abs(np.fft.rfft(frames, axis=2)).mean(axis=1)[:, :64].astype(np.float32))
        loss = model(x.cuda()).square().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 20 == 0:
            print(f"[{rank}] step {step} loss {loss.item():.3f}", flush=True)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    train(rank)
    folder = [tempfile.mkdtemp(prefix="mosaic-")]
    dist.broadcast_object_list(folder, src=0)
    with main_process_first(rank):
        entries = Mosaic(folder[0], SETTINGS).build()
    print(f"[{rank}] {len(entries)} tiles in the index", flush=True)
    count = torch.tensor([len(entries)], dtype=torch.float64, device="cuda")
    dist.all_reduce(count)
    assert count.item() == len(entries) * dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
