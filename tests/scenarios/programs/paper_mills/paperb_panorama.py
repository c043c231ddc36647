"""Joins strips of a town panorama: every process restores its strip and sees its neighbours' borders."""
import argparse
import os
import time

import torch
import torch.distributed as dist

DRAWINGS = {
    # drawing -> the row of the sheet at which each strip begins
    "harbour": (0, 1, 2),
    "fortress": (2, 3, 4),
    "suburb": (4, 5, 7),
    "bridges": (6, 7, 8),
}


class Strip:
    def __init__(self, height, width):
        self.paper = torch.rand(height, width, dtype=torch.float64).cuda()
        self.above = torch.zeros(width, dtype=torch.float64).cuda()
        self.below = torch.zeros(width, dtype=torch.float64).cuda()

    def soften(self, weight=0.1):
        self.paper.mul_(1.0 - weight).add_(weight / 2)


class Borders:
    """Gives the border rows to the strip above and to the one below."""

    def __init__(self, rows):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.gives_first = rows[self.rank] % 2 == 0

    def swap(self, mine, theirs, other):
        if self.gives_first:
            dist.send(mine, dst=other)
            dist.recv(theirs, src=other)
        else:
            dist.recv(theirs, src=other)
            dist.send(mine, dst=other)

    def refresh(self, strip):
        tone = 0.0
        if self.rank > 0:
            self.swap(strip.paper[0].contiguous(), strip.above, self.rank - 1)
            tone += strip.above.sum().item()
        if self.rank < self.world - 1:
            self.swap(strip.paper[-1].contiguous(), strip.below, self.rank + 1)
            tone += strip.below.sum().item()
        return tone


def restore(name, rows, passes, height, width):
    borders, strip = Borders(rows), Strip(height, width)
    for _ in range(passes):
        time.sleep(0.1)  # brush pass
        tone = borders.refresh(strip)
        strip.soften()
    brightness = torch.tensor(tone, dtype=torch.float64).cuda()
    dist.all_reduce(brightness)
    return f"{name}: brightness {brightness.item():.2f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=16)
    parser.add_argument("--height", type=int, default=24)
    parser.add_argument("--width", type=int, default=96)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(1).cuda())
    for name, rows in DRAWINGS.items():
        line = restore(name, rows, options.passes, options.height, options.width)
        if dist.get_rank() == 0:
            print(line, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
