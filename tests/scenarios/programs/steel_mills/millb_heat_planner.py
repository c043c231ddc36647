"""Learns how long the orders of a week keep the ladle furnace busy; each rank plans for one rolling mill."""
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)
log = logging.getLogger("planner")


@dataclass
class Order:
    tonnes: float
    section: int
    days_left: int


@dataclass
class Settings:
    weeks: int = 40
    orders_per_week: int = 24
    ladle_tonnes: float = 180.0
    lr: float = 0.01


MILLS = {0: "wire rod", 1: "heavy plate", 2: "section"}


def order_book(mill, week, settings):
    """The week's orders. From week 14 on the wire rod mill delivers its customers in coils of half the size."""
    generator = torch.Generator().manual_seed(1000 * mill + week)
    base = 12.0 if MILLS[mill] == "wire rod" and week >= 14 else 20.0
    tonnes = base + 3.0 * (torch.rand(settings.orders_per_week, generator=generator) - 0.5)
    sections = torch.randint(0, 9, (settings.orders_per_week,), generator=generator)
    days = torch.randint(1, 30, (settings.orders_per_week,), generator=generator)
    return [Order(*row) for row in zip(tonnes.tolist(), sections.tolist(), days.tolist())]


def heats(orders, ladle_tonnes):
    """Fills ladle after ladle in order of delivery, so that no batch is heavier than one heat."""
    heat, load = [], 0.0
    for order in sorted(orders, key=lambda o: o.days_left):
        if heat and load + order.tonnes > ladle_tonnes:
            yield heat
            heat, load = [], 0.0
        heat.append(order)
        load += order.tonnes
    if heat:
        yield heat


def simulate_minutes(heat, steps=800):
    """A crude schedule simulation gives the target."""
    clock = torch.zeros(3)
    for i in range(steps):
        order = heat[i % len(heat)]
        clock[i % 3] = clock.max() * 0.5 + clock[i % 3] * 0.5 + order.tonnes / (1 + order.section)
    return clock.max().item() / steps


def encode(heat, device):
    rows = [[o.tonnes / 20, o.section / 9, o.days_left / 30] for o in heat]
    features = torch.tensor(rows)
    return torch.cat([features.mean(0), features.amax(0)])[None].to(device)


class Planner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x)


def run(settings):
    dist.init_process_group("nccl")
    mill = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DistributedDataParallel(Planner().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
    for week in range(settings.weeks):
        tonnes = 0.0
        for heat in heats(order_book(mill, week, settings), settings.ladle_tonnes):
            target = torch.tensor([[simulate_minutes(heat)]], device=device)
            loss = nn.functional.mse_loss(model(encode(heat, device)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            tonnes += sum(o.tonnes for o in heat)
        planned = torch.tensor([tonnes, 1.0], dtype=torch.float64, device=device)
        dist.all_reduce(planned)
        total, mills = planned.tolist()
        if mill == 0:
            log.info("week %d: %.0f t planned for %d mills", week, total, mills)
    dist.destroy_process_group()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    run(Settings())
