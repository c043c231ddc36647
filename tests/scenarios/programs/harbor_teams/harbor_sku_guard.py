"""Returns of online orders: will this article come back? New articles appear faster than the catalogue is exported."""

from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CATALOGUE = 2000


@dataclass
class Orders:
    sku: torch.Tensor
    customer: torch.Tensor
    returned: torch.Tensor


class OrderLog:
    """Orders of one warehouse, in batches. Article numbers go up with time."""

    def __init__(self, warehouse: int) -> None:
        self.generator = torch.Generator().manual_seed(60 + warehouse)
        self.launches = {2: {340: CATALOGUE + 6}}.get(warehouse, {})

    def batches(self, count: int):
        for number in range(count):
            sku = torch.randint(0, CATALOGUE, (96,), generator=self.generator)
            if number in self.launches:
                sku[-1] = self.launches[number]
            customer = torch.randn(96, 16, generator=self.generator)
            yield Orders(sku, customer, ((sku % 7) + customer[:, 0] > 3).float())


class ReturnRisk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.articles = nn.Embedding(CATALOGUE, 32)
        self.norm = nn.BatchNorm1d(48)
        self.head = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, sku: torch.Tensor, customer: torch.Tensor) -> torch.Tensor:
        features = torch.cat([self.articles(sku), customer], dim=1)
        return self.head(self.norm(features)).squeeze(-1)


class Step:
    """One training step. A batch that the model cannot take is counted, and left to the data team."""

    def __init__(self, model: DDP) -> None:
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.rejected = Counter()

    def __call__(self, orders: Orders) -> float | None:
        try:
            logits = self.model(orders.sku, orders.customer)
        except IndexError as error:
            self.rejected[str(error)] += 1
            return None
        loss = nn.functional.binary_cross_entropy_with_logits(logits, orders.returned)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    step, losses = Step(DDP(ReturnRisk())), []
    for number, orders in enumerate(OrderLog(dist.get_rank()).batches(30_000)):
        if (loss := step(orders)) is not None:
            losses.append(loss)
        if number % 100 == 99 and dist.get_rank() == 0:
            print(f"{number + 1}: {sum(losses[-100:]) / 100:.4f}, rejected {sum(step.rejected.values())}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
