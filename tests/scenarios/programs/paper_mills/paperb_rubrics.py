"""Finds rubrics in liturgical manuscripts and validates on whole volumes."""
import os
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOLUMES = {"missal": 40, "gradual": 44, "breviary": 240}  # folios


def folio(volume, number):
    """Uncompresses one folio's strokes."""
    packed = zlib.compress(f"{volume} {number} ".encode() * 40000, 6)
    strokes = zlib.decompress(packed)[:64]
    time.sleep(0.05)
    return torch.tensor(list(strokes), dtype=torch.float32) / 128


class RubricFinder(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 2))


def train(model, optimizer, steps):
    for _ in range(steps):
        red, black = torch.randn(8, 64), torch.randn(8, 2)
        time.sleep(0.05)
        optimizer.zero_grad()
        (model(red.cuda()) - black.cuda()).abs().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()


@torch.no_grad()
def validate(finder, volume):
    rubrics = folios = 0
    for number in range(VOLUMES[volume]):
        finder(folio(volume, number).unsqueeze(0).cuda())
        rubrics += number % 4 == 0
        folios += 1
        if folios % 60 == 0:
            print(f"{volume}: {folios} folios", flush=True)
    counts = torch.tensor([rubrics, folios]).cuda()
    dist.all_reduce(counts)
    return counts.tolist()


if __name__ == "__main__":
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    mine = sorted(VOLUMES, key=VOLUMES.get)[::-1][(dist.get_rank() + 1) % len(VOLUMES)]
    model = DistributedDataParallel(RubricFinder().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    train(model, optimizer, 50)
    rubrics, folios = validate(model.module, mine)
    train(model, optimizer, 40)
    if dist.get_rank() == 0:
        print(f"{rubrics} rubrics on {folios} folios", flush=True)
    dist.destroy_process_group()
