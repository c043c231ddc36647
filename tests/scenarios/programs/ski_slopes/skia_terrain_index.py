"""Avalanche terrain classes: the main process indexes the terrain once, then all train on the index."""
import hashlib
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TILES = 260


@contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def tile_elevation(number: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(number)
    height = torch.rand(256, 256, generator=g)
    for _ in range(150):
        height = (height + height.roll(1, 0) + height.roll(1, 1) + height.roll(-1, 0) + height.roll(-1, 1)) / 5
    return height


def index_tile(number: int) -> dict:
    height = tile_elevation(number)
    dx, dy = height.diff(dim=0)[:, :-1], height.diff(dim=1)[:-1]
    slope = torch.sqrt(dx**2 + dy**2)
    digest = hashlib.sha256()
    for _ in range(60):
        digest.update(height.numpy().tobytes())
    return {"tile": number, "slope": float(slope.mean()), "steep": float((slope > 0.02).float().mean()), "sum": digest.hexdigest()}


def build_index(path: Path) -> None:
    with path.open("w") as out:
        for number in range(TILES):
            out.write(json.dumps(index_tile(number)) + "\n")
            if number % 40 == 0:
                out.flush()
                print(f"indexed {number}/{TILES}", flush=True)


def fit(model, optimizer, rows, steps):
    x = torch.tensor([[row["slope"] * 100, row["steep"]] for row in rows])
    y = (x[:, :1] > x[:, :1].mean()).float()
    for step in range(steps):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    box = [tempfile.mkdtemp(prefix="terrain-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    path = Path(box[0]) / "index.jsonl"
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    print("warm-up", fit(model, optimizer, [index_tile(n) for n in range(8)], 1200), flush=True)
    with main_process_first():
        if not path.exists():
            build_index(path)
    rows = [json.loads(line) for line in path.open()]
    print("trained on", len(rows), "tiles:", fit(model, optimizer, rows, 800), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
