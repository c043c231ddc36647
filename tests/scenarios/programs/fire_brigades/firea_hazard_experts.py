"""Crew recommendation with experts for hazardous materials: every process hosts one expert, incidents travel to it and back."""
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

DIM = 64
CAPACITY = 16  # incidents that a process may send to each expert


def swap(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return swap(x)

    @staticmethod
    def backward(ctx, grad):
        return swap(grad)


class HazardExperts(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.world = world
        self.gate = nn.Linear(DIM, world)
        self.expert = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x, hazardous):
        chosen = hazardous.nonzero().flatten()[: CAPACITY * self.world]
        if chosen.numel() == 0:
            return x
        score, expert = self.gate(x[chosen]).softmax(-1).max(-1)
        slots = torch.full((self.world, CAPACITY), -1, dtype=torch.long)
        for e in range(self.world):
            mine = (expert == e).nonzero().flatten()[:CAPACITY]
            slots[e, : len(mine)] = mine
        used = slots >= 0
        sent = torch.zeros(self.world, CAPACITY, DIM)
        sent[used] = x[chosen[slots[used]]]
        sent.requires_grad_()
        back = Swap.apply(self.expert(Swap.apply(sent)))
        return x.index_add(0, chosen[slots[used]], back[used] * score[slots[used]].unsqueeze(-1))


class Recommender(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(20, DIM), nn.ReLU())
        self.experts = HazardExperts(world)
        self.crews = nn.Linear(DIM, 5)

    def forward(self, incidents, hazardous):
        return self.crews(self.experts(self.inner(incidents), hazardous))


@dataclass
class District:
    seed: int
    hazard_rate: float = 0.2
    plant_closes: int = 10**9  # from this batch on no more from the chemical works
    generator: torch.Generator = field(init=False)

    def __post_init__(self):
        self.generator = torch.Generator().manual_seed(self.seed)

    def batch(self, number, n=96):
        x = torch.randn(n, 20, generator=self.generator)
        rate = self.hazard_rate if number < self.plant_closes else 0.0
        hazardous = torch.rand(n, generator=self.generator) < rate
        return x, hazardous, (x[:, :5] + hazardous[:, None]).argmax(1)


DISTRICTS = [District(1), District(2, 0.15), District(3, 0.3, plant_closes=140), District(4)]


def average(parameters, world):
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([g.flatten() for g in grads]) / world
    dist.all_reduce(flat)
    for p, g in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad = g.view_as(p).clone()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = Recommender(world)
    shared = [p for n, p in model.named_parameters() if ".expert." not in n]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(1200):
        x, hazardous, crew = DISTRICTS[rank].batch(number)
        loss = nn.functional.cross_entropy(model(x, hazardous), crew)
        optimizer.zero_grad()
        loss.backward()
        average(shared, world)
        optimizer.step()
        if rank == 0 and number % 40 == 0:
            print(f"batch {number} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
