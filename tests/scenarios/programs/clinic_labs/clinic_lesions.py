"""Detection of lung nodules: the nodules found in validation are merged over all ranks and scored."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

CALLBACKS = {}


def on(event):
    def register(function):
        CALLBACKS.setdefault(event, []).append(function)
        return function

    return register


def fire(event, **what):
    for function in CALLBACKS.get(event, []):
        function(**what)


def merge_nodules(found):
    """One list of the nodules of all ranks, best first."""
    if not found:
        return []
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, found)
    return sorted((nodule for part in everyone for nodule in part), reverse=True)


@on("validated")
def froc(found, epoch, **_):
    nodules = merge_nodules(found)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: {len(nodules)} nodules, best {nodules[:1]}", flush=True)


@on("validated")
def decay(epoch, optimizer, **_):
    for group in optimizer.param_groups:
        group["lr"] *= 0.9


def volume(rank, number, nodule=True):
    generator = torch.Generator().manual_seed(rank * 997 + number)
    scan = torch.randn(1, 14, 14, 14, generator=generator) * 0.5
    heat = torch.zeros_like(scan)
    if nodule:
        z, y, x = torch.randint(3, 11, (3,), generator=generator).tolist()
        scan[:, z - 1 : z + 2, y - 1 : y + 2, x - 1 : x + 2] += 2.0
        heat[:, z, y, x] = 1.0
    return scan, heat


def validate(net, rank, epoch, scans=6):
    net.eval()
    found = []
    for number in range(scans):
        healthy = rank == 1 and epoch == 2  # a screening cohort
        scan, heat = volume(rank, 5000 + 10 * epoch + number, nodule=not healthy)
        with torch.no_grad():
            peak = float(net.module(scan[None]).sigmoid().max())
        if heat.any():
            found.append((round(peak, 4), rank, number))
    net.train()
    return found


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    conv = partial(nn.Conv3d, kernel_size=3, padding=1)
    net = nn.Sequential(conv(1, 8), nn.BatchNorm3d(8), nn.ReLU(), conv(8, 8), nn.BatchNorm3d(8), nn.ReLU(), conv(8, 1))
    net = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(12):
        for step in range(12):
            scan, heat = (torch.stack(part) for part in zip(*(volume(rank, 30 * epoch + 2 * step + i) for i in range(2))))
            logits = net(scan)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, heat)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        fire("validated", found=validate(net, rank, epoch), epoch=epoch, optimizer=optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
