"""Nitrogen dioxide at street level from traffic and weather; blocks of streets are worked through in passes."""
import logging
import os
from collections import namedtuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("no2")

Block = namedtuple("Block", "name canyons passes")
BLOCKS = [Block("Neukoelln", 180, 6), Block("Wedding", 180, 3), Block("Moabit", 180, 6)]


def dispersion(canyons, rng, hours=48):
    """Concentrations in street canyons by an explicit scheme; the model learns the hourly means."""
    emission = torch.rand(canyons, 64, generator=rng)
    field = torch.zeros(canyons, 64)
    means = []
    for _ in range(hours):
        wind = 0.1 + 0.3 * torch.rand(canyons, 1, generator=rng)
        for _ in range(12):
            field = field + 0.2 * (field.roll(1, 1) - 2 * field + field.roll(-1, 1)) - wind * (field - field.roll(1, 1)) + emission * 0.01
        means.append(field.mean(1))
    return emission, torch.stack(means, 1)


class Schedule:
    def __init__(self, block, steps_per_pass):
        self.block, self.steps = block, steps_per_pass
        self.finished = 0

    def passes(self):
        while self.finished < self.block.passes:
            yield self.finished
            self.finished += 1


class Mapper:
    def __init__(self, device):
        torch.manual_seed(23)
        net = torch.nn.Sequential(torch.nn.Linear(64, 80), torch.nn.SiLU(), torch.nn.Linear(80, 48))
        self.device = device
        self.model = DDP(net.to(device), device_ids=[device.index])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=5e-3)
        self.plan = torch.optim.lr_scheduler.StepLR(self.optimizer, 10, 0.8)

    def step(self, emission, means):
        loss = torch.nn.functional.mse_loss(self.model(emission.to(self.device)), means.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.plan.step()
        return float(loss.detach())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    block = BLOCKS[dist.get_rank() % len(BLOCKS)]
    mapper = Mapper(device)
    rng = torch.Generator().manual_seed(dist.get_rank())
    schedule = Schedule(block, steps_per_pass=24)
    for number in schedule.passes():
        losses = [mapper.step(*dispersion(block.canyons, rng)) for _ in range(schedule.steps)]
        log.info("%s: pass %d of %d, %.3g", block.name, number + 1, block.passes, losses[-1])
    log.info("%s: map complete", block.name)


if __name__ == "__main__":
    main()
