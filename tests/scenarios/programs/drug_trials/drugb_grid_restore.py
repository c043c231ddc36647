"""Rescoring with receptor grids: every process restores its grid cache from the node snapshot, then trains."""
import array
import json
import math
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

POLL = 0.5
SNAPSHOT = json.loads("""
{"local_0": ["5kcv.grid", "5kcv.meta", "6lu7.grid", "6lu7.meta"],
 "local_1": ["5kcv.grid", "5kcv.meta", "6lu7.grid.part", "6lu7.grid.lock"],
 "local_2": ["5kcv.grid", "5kcv.meta"],
 "local_3": ["5kcv.grid", "5kcv.meta", "6lu7.meta"]}
""")


def write_grid(path: Path, edge: int = 18):
    values = array.array("f")
    for i in range(edge):
        for j in range(edge):
            for k in range(edge):
                values.append(math.exp(-0.02 * ((i - 9) ** 2 + (j - 9) ** 2 + (k - 9) ** 2)))
    path.write_bytes(values.tobytes())


def restore(folder: Path, local_rank: int):
    for name in SNAPSHOT[f"local_{local_rank}"]:
        target = folder / name
        if name.endswith(".grid"):
            write_grid(target)
        elif name.endswith(".part"):
            target.write_bytes(b"\0" * 4096)
        else:
            target.touch()


class GridCache:
    """Grids are computed once per folder; whoever computes one has `<name>.grid.lock` in the meantime."""

    def __init__(self, folder: Path):
        self.folder = folder

    def fetch(self, receptor: str) -> torch.Tensor:
        grid, lock = self.folder / f"{receptor}.grid", self.folder / f"{receptor}.grid.lock"
        while not grid.exists():
            try:
                lock.touch(exist_ok=False)
            except FileExistsError:
                time.sleep(POLL)
                continue
            try:
                write_grid(grid)
            finally:
                lock.unlink()
        values = array.array("f", grid.read_bytes())
        return torch.tensor(values).reshape(18, 18, 18)


def sample(grid: torch.Tensor, count: int) -> torch.Tensor:
    where = torch.randint(0, 15, (count, 3))
    return torch.stack([grid[x : x + 3, y : y + 3, z : z + 3].flatten() for x, y, z in where.tolist()])


def rescore(cache: GridCache, model, optimizer, receptor: str, steps: int):
    grid = cache.fetch(receptor)
    for step in range(steps):
        patches = sample(grid, 512)
        loss = (model(patches).squeeze(-1) - patches.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix=f"grids{rank}_"))
    restore(folder, rank)
    cache = GridCache(folder)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for receptor in ("5kcv", "6lu7"):
        loss = rescore(cache, model, optimizer, receptor, steps=150)
        if rank == 0:
            print(f"{receptor}: loss {loss:.5f}", flush=True)
    shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
