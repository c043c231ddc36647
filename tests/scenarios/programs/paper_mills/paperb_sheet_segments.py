# Segment cadastral sheets into fields, roads and water (sharded with FSDP2).
import logging
import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("sheets")


@dataclass
class District:
    name: str
    tiles: list = field(default_factory=list)  # tiles of each surveyed sheet, in the order of the atlas

    def packs(self, rank, world, room=12):
        """This rank's sheets, put together until a pack is full."""
        packs, current = [], 0
        for count in self.tiles[rank::world]:
            if current and current + count > room:
                packs.append(current)
                current = 0
            current += count
        return packs + [current]


ATLAS = [
    District("Blaubeuren", [5, 6, 4, 7, 6, 8, 4, 5, 3]),
    District("Ehingen", [8, 9, 7, 6, 5, 4, 5, 6, 8]),
    District("Laupheim", [7, 8, 5, 6, 9, 4, 8, 7, 3]),
    District("Biberach", [6, 6, 6, 5, 7, 4, 8, 3, 9]),
]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Segmenter(nn.Module):
    def __init__(self, width=40, classes=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(width=40):
    model = Segmenter(width).cuda()
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=True)
    return fully_shard(model)


def train_epoch(model, optimizer, steps):
    for _ in range(steps):
        tiles, truth = torch.randn(12, 40), torch.randn(12, 4)
        time.sleep(0.1)  # cutting the tiles out of the scan
        loss = (model(tiles.cuda()) - truth.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@torch.no_grad()
def validate(model, district):
    covered, agreement = 0, 0.0
    for count in district.packs(dist.get_rank(), dist.get_world_size()):
        answer = model(torch.randn(count, 40).cuda())
        agreement += answer.sum().item()
        covered += count
    totals = torch.tensor([float(covered), agreement]).cuda()
    dist.all_reduce(totals)
    return totals.tolist()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(dist.get_rank())
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for district in ATLAS:
        loss = train_epoch(model, optimizer, steps=12)
        covered, _ = validate(model, district)
        if dist.get_rank() == 0:
            log.info("%s: loss %.3f, %d tiles validated", district.name, loss, covered)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
