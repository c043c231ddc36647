"""Cash-flow forecast, with meters that are created when a kind of booking is seen for the first time."""

import time
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter(ABC):
    def __init__(self):
        self.values = []

    @abstractmethod
    def synchronise(self):
        """The value over all ranks; a collective."""


class Total(Meter):
    def synchronise(self):
        total = torch.tensor(sum(self.values), dtype=torch.float64)
        dist.all_reduce(total)
        return total.item()


class Largest(Meter):
    def synchronise(self):
        mine = torch.tensor(max(self.values), dtype=torch.float64)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        return max(t.item() for t in every)


KINDS = {"sale": Total, "refund": Largest}


class Meters(dict):
    def __missing__(self, kind):
        self[kind] = KINDS[kind]()
        return self[kind]

    def publish(self):
        return {kind: meter.synchronise() for kind, meter in self.items()}


def bookings(rank):
    """Steps of bookings; the day of one ledger begins with what came back over night."""
    for step in range(400):
        kinds = ["refund", "sale", "sale", "sale"] if rank == 1 else ["sale", "sale", "sale", "refund"]
        yield step, [(kind, 1.0 + (step * 7 + k) % 13) for k, kind in enumerate(kinds)]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    meters = Meters()
    for step, rows in bookings(rank):
        time.sleep(0.04)
        amounts = torch.tensor([[amount for _, amount in rows]])
        loss = nn.functional.huber_loss(model(amounts), amounts.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for kind, amount in rows:
            meters[kind].values.append(amount)
        if (step + 1) % 40 == 0:
            values = meters.publish()
            if rank == 0:
                print(f"step {step} {values}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
