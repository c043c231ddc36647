"""Ship / sea-clutter classifier on harbour radar sweeps, data parallel over the stations."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("radarsweep")

CELLS = 96
SWEEPS_PER_EPOCH = 70
# minimum echo strength (dB) that counts as a target, per antenna
GAIN = {"north-mole": 3.0, "breakwater": 3.0, "south-head": 3.0}
# maintenance log: antenna -> sweeps taken while the magnetron was warming up
WARMUP = {"north-mole": (), "breakwater": (43,), "south-head": ()}


class NoTargets(ValueError):
    pass


class SweepSource:
    def __init__(self, antenna, seed):
        self.antenna = antenna
        self.generator = torch.Generator().manual_seed(seed)

    def sweep(self, number):
        raw = torch.randn(160, CELLS, generator=self.generator)
        power = torch.fft.rfft(raw, dim=1).abs()
        if number in WARMUP[self.antenna]:
            power = power * 0.01
        return torch.cat([power, raw], dim=1)[:, :CELLS], power

    def targets(self, number):
        plot, power = self.sweep(number)
        strong = power.amax(dim=1) > GAIN[self.antenna]
        if int(strong.sum()) < 4:
            raise NoTargets(f"{self.antenna}: sweep {number} has no plots above the gain")
        chosen = plot[strong][:32]
        return chosen, (chosen.mean(dim=1) > 0).long()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CELLS, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x):
        return self.body(x)


def train_epoch(model, optimizer, source):
    loss_fn = nn.CrossEntropyLoss()
    used, running = 0, 0.0
    for number in range(SWEEPS_PER_EPOCH):
        try:
            plots, labels = source.targets(number)
        except NoTargets as error:
            log.info("%s", error)
            continue
        loss = loss_fn(model(plots.cuda()), labels.cuda())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        used += len(plots)
        running = 0.9 * running + 0.1 * loss.item()
        if number % 10 == 0:
            log.info("sweep %d running loss %.4f", number, running)
    return used


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    antenna = list(GAIN)[rank]
    source = SweepSource(antenna, seed=100 + rank)
    model = DDP(Detector().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        used = train_epoch(model, optimizer, source)
        total = torch.tensor([float(used), 1.0], device="cuda")
        dist.all_reduce(total)
        plots, stations = total.tolist()
        log.info("epoch %d: %d plots from %d stations", epoch, plots, stations)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
