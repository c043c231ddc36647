"""Lithology from borehole logs. Each process takes its share of the holes; windows slide down the hole."""
import argparse
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

HOLES = {  # drilled metres
    "DD-101": 640, "DD-102": 612, "DD-103": 388, "DD-104": 655,
    "DD-105": 590, "DD-106": 571, "DD-107": 260, "DD-108": 603,
}
CURVES = 6  # gamma, density, sonic, resistivity, caliper, neutron


def holes_of(rank, world):
    return list(HOLES)[rank::world]


def curves(hole):
    g = torch.Generator().manual_seed(sum(map(ord, hole)))
    return torch.randn(CURVES, HOLES[hole] * 100, generator=g).cumsum(dim=1) / 30


def windows(holes, length, stride):
    for hole in holes:
        log = curves(hole)
        for top in range(0, log.shape[1] - length, stride):
            window = log[:, top:top + length]
            window = (window - window.mean(dim=1, keepdim=True)) / (window.std(dim=1, keepdim=True) + 1e-6)
            spectrum = torch.fft.rfft(window.repeat(4, 1)).abs().reshape(4, CURVES, -1).mean(dim=0)
            yield spectrum[:, :128].log1p().flatten(), int(abs(float(window[:, -1].sum())) * 10) % 5


def batches(source, size):
    while chunk := list(itertools.islice(source, size)):
        if len(chunk) < size:
            return
        x, y = zip(*chunk)
        yield torch.stack(x), torch.tensor(y)


def epoch(model, optimizer, loader, limit):
    seen = 0
    for step, (x, y) in enumerate(itertools.islice(loader, limit)):
        loss = nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda"))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seen += len(y)
        if step % 8 == 0:
            print(f"[{dist.get_rank()}] step {step} loss {loss.item():.3f}", flush=True)
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--stride", type=int, default=96)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--limit", type=int, default=56, help="batches per epoch")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank, world = dist.get_rank(), dist.get_world_size()
    net = nn.Sequential(nn.Linear(CURVES * 128, 96), nn.ReLU(), nn.Linear(96, 5)).to("cuda")
    model = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number in range(4):
        source = windows(holes_of(rank, world), args.length, args.stride)
        seen = epoch(model, optimizer, batches(source, args.batch), args.limit)
        totals = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(world)]
        dist.all_gather(totals, torch.tensor([seen], device="cuda"))
        totals = [int(t) for t in totals]
        if rank == 0:
            print(f"epoch {number}: windows {totals}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
