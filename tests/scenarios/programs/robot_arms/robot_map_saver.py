"""Neural occupancy map for navigation; map tiles are collected by a saver thread meanwhile."""
import concurrent.futures
import time
import zlib

import torch
import torch.distributed as dist


class TileSaver:
    """Compresses this rank's tiles and collects everyone's at rank 0, off the training thread."""

    def __init__(self, level):
        self.pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="tiles")
        self.level, self.pending = level, None

    def submit(self, tiles, step):
        if self.pending is not None:
            self.pending.result()
        self.pending = self.pool.submit(self._save, {k: v.clone() for k, v in tiles.items()}, step)

    def _save(self, tiles, step):
        packed = {k: zlib.compress(v.numpy().tobytes(), self.level) for k, v in tiles.items()}
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, packed)
        if dist.get_rank() == 0:
            torch.save(parts, f"tiles_{step}.pt")
            print(f"saved tiles of step {step}", flush=True)

    def finish(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


class OccupancyField(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Softplus(), torch.nn.Linear(64, 1))

    def forward(self, xyz):
        return self.net(xyz)


def scan(g):
    xyz = torch.rand(128, 3, generator=g) * 4 - 2
    return xyz, (xyz.norm(dim=1, keepdim=True) < 1.2).float()


def build_tiles(field, area):
    axis = torch.linspace(-2, 2, area)
    grid = torch.cartesian_prod(axis, axis, torch.zeros(1))
    with torch.no_grad():
        return {"ground": field(grid), "floor": torch.randn(area, area * 8)}


def step_once(field, optimizer, g, world):
    xyz, occupied = scan(g)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(field(xyz), occupied)
    optimizer.zero_grad()
    loss.backward()
    for p in field.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    field = OccupancyField()
    optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(rank)
    area = {0: 16, 1: 1200, 2: 16}[rank]  # the second vehicle maps the hall
    saver = TileSaver(level=9)
    for step in range(1, 1200):
        loss = step_once(field, optimizer, g, world)
        if step % 80 == 0:
            tiles = build_tiles(field, area)
            dist.barrier()
            saver.submit(tiles, step)
        time.sleep(0.03 if step % 80 else 0.4)  # the lidar turns once while tiles are cut
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    saver.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
