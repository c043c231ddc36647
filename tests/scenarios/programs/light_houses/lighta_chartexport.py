"""Positions buoys on a chart; the first process draws the atlas when a season is over."""
import json
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
SHEETS = 13


def main_process(fn):
    def only_first(*args, **kwargs):
        result = fn(*args, **kwargs) if dist.get_rank() == 0 else None
        dist.barrier()
        return result

    return only_first


def isobath(sheet, depth, points=360):
    ring = []
    for k in range(points):
        a = 2 * math.pi * k / points
        r = 1 + 0.1 * math.sin(5 * a + sheet) + 0.02 * depth + 0.05 * math.cos(11 * a * depth)
        ring.append((round(r * math.cos(a), 6), round(r * math.sin(a), 6)))
    return ring


@main_process
def export_atlas(season):
    folder = tempfile.mkdtemp(prefix=f"atlas{season}-")
    for sheet in range(SHEETS):
        until = time.monotonic() + 1.0  # a sheet is drawn as finely as a second allows
        features, depth = [], 0
        while time.monotonic() < until:
            depth += 1
            features = features[-40:] + [{"depth": depth, "ring": isobath(sheet, depth)}]
        with open(os.path.join(folder, f"sheet{sheet:02d}.json"), "w") as out:
            json.dump({"sheet": sheet, "contours": depth, "features": features}, out)
    print(f"season {season}: {len(os.listdir(folder))} sheets in {folder}", flush=True)
    return folder


def steps(model, optimizer, count, generator):
    for _ in range(count):
        fixes = torch.randn(64, 2048, generator=generator)
        x = torch.fft.rfft(fixes).abs()[:, :32]
        loss = nn.functional.mse_loss(model(x.cuda()), x[:, :2].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def main():
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    generator = torch.Generator().manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)).cuda(), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps(model, optimizer, 80, generator)
    export_atlas(1)
    steps(model, optimizer, 60, generator)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
