"""Forecast of how much of a delivery each animal house eats, with a small ledger of open deliveries."""
import logging
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("feed")
HOUSES = ["elephants", "apes", "aviary"]


@dataclass
class Delivery:
    number: int
    kilos: float
    eaten: float = 0.0


@dataclass
class FeedLedger:
    """Open deliveries of this house; `settle` compares what the houses have left of one."""

    house: str
    appetite: float
    open: dict = field(default_factory=dict)

    def book(self, number, kilos):
        self.open[number] = Delivery(number, kilos)

    def feed(self):
        for delivery in list(self.open.values()):
            delivery.eaten += self.appetite
            if delivery.eaten >= delivery.kilos:
                self.open.pop(delivery.number)

    def settle(self, number):
        delivery = self.open.get(number)
        if delivery is None:
            return 0.0
        left = torch.tensor([delivery.kilos - delivery.eaten, delivery.kilos])
        parts = [torch.empty_like(left) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, left)
        return float(sum(part[0] for part in parts) / sum(part[1] for part in parts))


class Appetite(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def weigh_troughs(generator, count=64):
    time.sleep(0.06)  # the scales report at about 16 Hz
    x = torch.randn(count, 12, generator=generator)
    return x, x[:, :3].sum(1) + 0.1 * torch.randn(count, generator=generator)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    ledger = FeedLedger(HOUSES[rank], appetite=[1.1, 2.3, 0.8][rank])
    model = DDP(Appetite())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(600):
        if step % 100 == 0:
            ledger.book(step // 100, kilos=120.0)
        x, y = weigh_troughs(generator)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ledger.feed()
        if step % 10 == 9:
            left = ledger.settle(step // 100)
            if rank == 0:
                log.info("step %d loss %.3f, %.0f %% of the delivery left", step, loss.item(), 100 * left)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
