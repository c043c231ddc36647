"""Surface quality of slabs, billets and blooms from caster signals, with a meter per product that is averaged over the casters."""
import logging
import os
import random
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)
logger = logging.getLogger("quality")

PRODUCTS = ("slab", "billet", "bloom")
CAMPAIGNS = {  # casting order of each caster, as planned by the works
    0: ["slab", "billet", "bloom"],
    1: ["slab", "billet", "bloom"],
    2: ["slab", "billet", "bloom"],
}
CAMPAIGNS_AFTER_REPAIR = {**CAMPAIGNS, 2: ["billet", "slab", "bloom"]}


class Meter:
    def __init__(self, channel):
        self.channel, self.total, self.count = channel, 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1

    def average(self, device):
        pair = torch.tensor([self.total, self.count], dtype=torch.float64, device=device)
        dist.all_reduce(pair, group=self.channel)
        total, count = pair.tolist()
        return total / max(count, 1)


class Meters(defaultdict):
    """A meter appears with the first piece of its product; each product has a channel of its own."""

    def __init__(self, channels):
        super().__init__()
        self.channels = channels

    def __missing__(self, product):
        self[product] = Meter(self.channels[product])
        return self[product]

    def report(self, device):
        averages = {product: meter.average(device) for product, meter in self.items()}
        self.clear()
        return averages


class Caster:
    def __init__(self, number):
        self.number, self.random = number, random.Random(number)

    def sequence(self, month, pieces=30):
        plan = (CAMPAIGNS if month < 4 else CAMPAIGNS_AFTER_REPAIR)[self.number]
        for product in plan:
            for _ in range(pieces // len(plan)):
                yield product, self.mould_signal(product)

    def mould_signal(self, product, samples=400):
        level, signal = 0.0, []
        for _ in range(samples):
            level = 0.97 * level + self.random.gauss(0, 0.1 + 0.05 * PRODUCTS.index(product))
            signal.append(level)
        return signal


def features(signal, width=20):
    window = torch.tensor(signal).view(width, -1)
    return torch.cat([window.mean(1), window.std(1)])[None]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    channels = {product: dist.new_group() for product in PRODUCTS}
    meters, caster = Meters(channels), Caster(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(40, 32), nn.GELU(), nn.Linear(32, 1)).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for month in range(24):
        for product, signal in caster.sequence(month):
            defect_index = max(signal) - min(signal)
            loss = (model(features(signal).to(device)) - defect_index).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meters[product].update(defect_index)
        averages = meters.report(device)
        if caster.number == 0:
            logger.info("month %d: %s", month, {p: round(a, 3) for p, a in averages.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
