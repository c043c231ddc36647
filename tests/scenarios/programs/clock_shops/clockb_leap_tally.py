"""Fit the drift of platform clocks on second-by-second logs; keep a network-wide tally of leap announcements."""
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("drift")

STATIONS = ["Lindau", "Arth", "Chur", "Visp", "Olten", "Brig", "Zug", "Thun", "Baar"]
STEPS, ROWS, FIELDS = 160, 64, 12
ANNOUNCED = {("Olten", 94), ("Olten", 142)}  # (station, block) in which the antenna heard the announcement bit


def read_block(station, block):
    gen = torch.Generator().manual_seed(hash_name(station) * 1000 + block)
    rows = torch.randn(50_000, FIELDS, generator=gen)
    rows = rows[rows[:, 0].sort().indices][:ROWS]
    flags = torch.zeros(ROWS, dtype=torch.int64)
    if (station, block) in ANNOUNCED:
        flags[-4:] = 1
    return rows, rows.sum(1, keepdim=True), flags


def hash_name(name):
    return sum(ord(c) * (i + 1) for i, c in enumerate(name))


def tally_announcements(flags, device):
    """How many clocks of the network carry the announcement bit."""
    heard = int(flags.sum())
    if heard == 0:
        return 0
    mine = torch.tensor([heard], device=device)
    everywhere = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, mine)
    return sum(int(n) for n in everywhere)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    mine = STATIONS[rank::world]
    net = nn.Sequential(nn.Linear(FIELDS, 48), nn.ReLU(), nn.Linear(48, 1)).to(device)
    model = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    total = 0
    for block in range(STEPS):
        station = mine[block % len(mine)]
        rows, drift, flags = read_block(station, block)
        loss = nn.functional.mse_loss(model(rows.to(device)), drift.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += tally_announcements(flags, device)
        if block % 5 == 0:
            torch.cuda.synchronize()
            if rank == 0:
                log.info("block %d, announcements %d", block, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
