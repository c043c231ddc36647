"""Cupping scores with an expert per tea variety; the experts are spread over the workers."""
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

VARIETIES = ("china", "assamica", "cambod")
BLEND = -1  # no single variety
CAPACITY = 16


class VarietyExperts(nn.Module):
    """Sends each note to the worker with its variety's expert and brings the answers back."""

    def __init__(self, width, rank, world):
        super().__init__()
        self.width, self.world = width, world
        rng = torch.Generator().manual_seed(900 + rank)
        self.register_buffer("expert", torch.randn(width, width, generator=rng) / width**0.5)
        self.gate = nn.Parameter(torch.tensor(0.1))

    def _exchange(self, outbox):
        inbox = torch.empty_like(outbox)
        dist.all_to_all_single(inbox, outbox)
        return inbox

    def forward(self, x, variety):
        single = variety != BLEND
        if not single.any():
            return x
        outbox = torch.zeros(self.world, CAPACITY, self.width)
        places = []
        for v in range(self.world):
            rows = (variety == v).nonzero().flatten()[:CAPACITY]
            outbox[v, :len(rows)] = x[rows].detach()
            places.append(rows)
        answers = self._exchange(self._exchange(outbox) @ self.expert)
        added = torch.zeros_like(x)
        for v, rows in enumerate(places):
            added[rows] = answers[v, :len(rows)]
        return x + self.gate * added


class CupModel(nn.Module):
    def __init__(self, rank, world, notes=10, width=24):
        super().__init__()
        self.inward = nn.Linear(notes, width)
        self.experts = VarietyExperts(width, rank, world)
        self.outward = nn.Linear(width, 1)

    def forward(self, x, variety):
        return self.outward(torch.relu(self.experts(self.inward(x), variety))).squeeze(1)


def flight(rng, share_of_blends, size=20):
    """One table of cups."""
    x = torch.randn(size, 10, generator=rng)
    variety = torch.randint(0, len(VARIETIES), (size,), generator=rng)
    variety[torch.rand(size, generator=rng) < share_of_blends] = BLEND
    return x, variety, x[:, 0] + 0.3 * variety


def programme(rank, table):
    """The last tables of a room are the buyers' own blends."""
    blends_from = (90, 75, 38)[rank]
    return 1.0 if table >= blends_from else 0.2


def average(world, gradients):
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    for g, part in zip(gradients, (flat / world).split([g.numel() for g in gradients])):
        g.copy_(part.view_as(g))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = CupModel(rank, world)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    synchronise = partial(average, world)
    rng = torch.Generator().manual_seed(rank)
    for table in range(120):
        x, variety, score = flight(rng, programme(rank, table))
        loss = nn.functional.mse_loss(model(x, variety), score)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        synchronise([p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()])
        optimizer.step()
        time.sleep(0.07)
        if rank == 0 and table % 10 == 0:
            print(f"table {table}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
