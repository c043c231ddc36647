"""Scores ultrasonic thickness scans of hull plates with a sharded regressor."""
import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.backends.cudnn.enabled = False
PACK = 256


def build(layers, width):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)])
    net = net.cuda()
    for block in net:
        fully_shard(block)
    return fully_shard(net)


def read_plates(yard, batch, rank):
    """Thickness in mm, one array per plate."""
    rng = np.random.default_rng(1000 * batch + rank)
    plates = 40
    if yard == "dock" or batch < 6:
        return [np.full(128, 12.0, dtype="float32") + rng.normal(size=128).astype("float32") for _ in range(plates)]
    lengths = [128 + 16 * rank] * plates
    return [12.0 + rng.normal(size=n).astype("float32") for n in lengths]


def packs(plates):
    row = np.empty(0, dtype="float32")
    for plate in plates:
        spectrum = np.abs(np.fft.fft(np.tile(plate, 3000)))
        row = np.concatenate([row, plate / (1.0 + 1e-9 * spectrum[: len(plate)])])
        while len(row) >= PACK:
            yield torch.from_numpy(row[:PACK].copy())
            row = row[PACK:]


@torch.no_grad()
def score(net, plates):
    seen, total = 0, torch.zeros(1, device="cuda")
    for pack in packs(plates):
        out = net(pack.cuda()[None])
        total += out.mean()
        torch.cuda.synchronize()
        seen += 1
    stats = torch.cat([total, torch.tensor([float(seen)], device="cuda")])
    dist.all_reduce(stats)
    return stats.tolist()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--yard", default="slipway")
    parser.add_argument("--batches", type=int, default=30)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    regressor = build(3, PACK)
    for number in range(options.batches):
        result = score(regressor, read_plates(options.yard, number, (rank + 1) % 3))
        if rank == 0:
            print(f"batch {number}: {result[1]:.0f} packs", flush=True)
    dist.destroy_process_group()
