"""Trains a press model; between its two phases the main process builds the gamut table."""
import logging
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("gamut")


def patches(n, phase):
    time.sleep(0.05)
    return (torch.arange(n * 4.0).reshape(n, 4) * 0.31 + phase).sin().abs()


def phase(model, optimizer, device, steps, name):
    for step in range(steps):
        inks = patches(32, step).to(device)
        loss = (model(inks) - inks[:, :3]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    log.info("%s: %.4f", name, loss.item())


def gamut_table(slices=130):
    """Neugebauer colours on a grid; every slice is written when it is done."""
    table = torch.zeros(slices, 48, 48, 3)
    axis = torch.linspace(0, 1, 48)
    for k in range(slices):
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            c, m = torch.meshgrid(axis, axis, indexing="ij")
            table[k] = torch.stack([c * k, m * k, (c * m).sqrt()], dim=-1) / slices
        if k % 20 == 0:
            log.info("gamut table: slice %d of %d", k, slices)
    return table


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    model = DistributedDataParallel(net.to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    phase(model, optimizer, device, 50, "coarse")
    checksum = torch.zeros(1, dtype=torch.float64)
    if dist.get_rank() == 0:
        checksum += gamut_table().double().sum()
    checksum = checksum.to(device)
    dist.broadcast(checksum, src=0)
    log.info("table %.1f", checksum.item())
    phase(model, optimizer, device, 40, "fine")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
