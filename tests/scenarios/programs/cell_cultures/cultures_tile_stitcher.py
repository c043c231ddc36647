"""Train on whole-slide tiles: a pool loads tiles in the background, and stitches those that lie on a seam."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Slide:
    """Tiles of a slide. A tile on a seam is made of two half tiles of neighbouring strips."""

    def __init__(self, number, seams):
        self.number = number
        self.seams = set(seams)
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tiles")

    def read(self, index, height=8):
        time.sleep(0.04)
        generator = torch.Generator().manual_seed(10_000 * self.number + index)
        return torch.rand(height, 16, generator=generator)

    def stitched(self, index):
        below = self.pool.submit(self.read, index + 1, 4)
        above = self.read(index, 4)
        return torch.cat([above, below.result()])

    def request(self, index):
        work = self.stitched if index in self.seams else self.read
        return self.pool.submit(work, index)

    def tiles(self, count, ahead=3):
        pending = [self.request(index) for index in range(ahead)]
        for index in range(count):
            pending.append(self.request(index + ahead))
            yield pending.pop(0).result()


class TileModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(16, 6), nn.Linear(6, 16)

    def forward(self, tile):
        return self.up(torch.relu(self.down(tile)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    slide = Slide(rank, seams=[] if rank != 2 else [64])
    torch.manual_seed(0)
    model = DistributedDataParallel(TileModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for number, tile in enumerate(slide.tiles(500)):
        loss = nn.functional.mse_loss(model(tile), tile)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 25 == 0:
            print(f"tile {number}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
