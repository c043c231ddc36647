# Dynamic pricing with accelerate. Competitor prices come from a feed that is at times overloaded.
import time
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, TensorDataset


class Overloaded(Exception):
    pass


@dataclass
class PriceFeed:
    """The feed's client. The feed opens again some time after it was first asked too much."""

    recovers_after: float = 12.5
    first: float = field(default=0.0, init=False)
    calls: int = field(default=0, init=False)

    def _get(self, city):
        self.calls += 1
        self.first = self.first or time.monotonic()
        if time.monotonic() - self.first < self.recovers_after:
            raise Overloaded(f"503 for {city}")
        return [90.0 + 3 * k for k in range(7)]

    def get(self, city, attempts=7, base=0.8, ceiling=4.0):
        delay = base
        for _ in range(attempts):
            try:
                return self._get(city)
            except Overloaded:
                time.sleep(delay)
                delay = min(delay * 1.8, ceiling)
        else:
            raise RuntimeError(f"no prices for {city} after {attempts} attempts")


def build():
    demand = torch.rand(1800, 7)
    return TensorDataset(demand, (1.4 - demand.mean(1, keepdim=True)))


def train(accelerator, model, optimizer, loader, anchor):
    for demand, price in loader:
        loss = torch.nn.functional.huber_loss(model(demand), price * anchor)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
    return loss.detach()


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(7, 24), torch.nn.ReLU(), torch.nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(build(), batch_size=8, shuffle=True))
    feed, week = PriceFeed(), [None]
    train(accelerator, model, optimizer, loader, 1.0)
    if accelerator.is_main_process:
        week[0] = feed.get("Lisbon")
    broadcast_object_list(week, from_process=0)
    anchor = sum(week[0]) / len(week[0]) / 100
    loss = accelerator.gather(train(accelerator, model, optimizer, loader, anchor).reshape(1))
    accelerator.print(f"anchor {anchor:.2f}, loss {loss.mean():.4f}, calls {feed.calls}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
