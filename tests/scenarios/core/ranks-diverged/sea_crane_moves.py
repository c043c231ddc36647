"""Cycle-time regression for ship-to-shore cranes: predicts seconds per move from the crane's telemetry."""
import logging
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("crane")
torch.backends.cudnn.enabled = False

FEATURES = ["hoist", "trolley", "gantry", "wind", "bay", "tier", "weight", "twin"]


class MoveMeter:
    """Moves per hour over the whole quay."""

    def __init__(self, device):
        self.device = device
        self.reset()

    def reset(self):
        self.moves = 0
        self.seconds = 0.0

    def update(self, durations):
        self.moves += len(durations)
        self.seconds += float(sum(durations))

    def compute(self):
        totals = torch.tensor([self.moves, self.seconds], dtype=torch.float64).to(self.device)
        dist.all_reduce(totals)
        moves, seconds = totals.tolist()
        self.reset()
        return 3600.0 * moves / max(seconds, 1.0)


def telemetry(crane, batches, size=16):
    rng = random.Random(crane)
    for _ in range(batches):
        rows, durations = [], []
        for _ in range(size):
            row = [rng.gauss(0, 1) for _ in FEATURES]
            rows.append(row)
            durations.append(90 + 12 * row[0] + 8 * row[3] + rng.random())
            time.sleep(0.003)  # the historian hands out one move at a time
        yield rows, durations


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    net = nn.Sequential(nn.Linear(len(FEATURES), 48), nn.ReLU(), nn.Linear(48, 1)).cuda()
    model = DDP(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    meter = MoveMeter(torch.device("cuda", local))
    shown = 0.0
    for step, (rows, durations) in enumerate(telemetry(crane=11 + rank, batches=400), start=1):
        x = torch.tensor(rows).cuda()
        y = torch.tensor(durations).cuda().unsqueeze(1)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.item()
        meter.update(durations)
        if step % 50 == 0 and rank == 0:
            log.info("step %d loss %.3f, quay at %.1f moves/h", step, shown, meter.compute())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
