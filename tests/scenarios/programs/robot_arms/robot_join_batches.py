"""Stores of different size train one picking model; DDP's join takes care of the shorter ones."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass(frozen=True)
class Store:
    name: str
    picks: int
    seconds_per_batch: float


STORES = (Store("north", 45, 0.05), Store("south", 165, 0.1), Store("hub", 50, 0.05))


def batches(store, size=1):
    g = torch.Generator().manual_seed(store.picks)
    for _ in range(store.picks // size):
        time.sleep(store.seconds_per_batch)  # camera exposure and grasp execution
        x = torch.randn(16, 20, generator=g)
        yield x, (x[:, 0] > x[:, 1]).float()[:, None]


class Picker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(20, 48)
        self.score = torch.nn.Linear(48, 1)

    def forward(self, x):
        return self.score(torch.relu(self.trunk(x)))


def main():
    dist.init_process_group("gloo")
    store = STORES[dist.get_rank()]
    torch.manual_seed(2)
    model = DDP(Picker())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = 0
    with Join([model]):
        for x, y in batches(store):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
            loss.backward()
            optimizer.step()
            seen += 1
            if seen % 15 == 0 and store.name == "north":
                print(f"{store.name}: {seen} batches, loss {loss.item():.4f}", flush=True)
    total = torch.tensor(seen)
    dist.all_reduce(total)
    print(f"{store.name}: {seen} of {total.item()} batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
