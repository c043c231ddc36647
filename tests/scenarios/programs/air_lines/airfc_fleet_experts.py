"""Turnaround times by a mixture with one expert per fleet group; the experts' weights are spread over the workers by rows."""
import time

import torch
import torch.distributed as dist
from torch import nn

GROUPS = ["narrowbody", "widebody", "regional", "freighter"]
FREIGHT_CUTOFF = 41  # slot from which the city airport handles no freighters
AIRPORTS = ["hub", "city", "coast"]


class GatherRows(torch.autograd.Function):
    """Full weight from everyone's rows; the gradient goes back to the rows' owner."""

    @staticmethod
    def forward(ctx, rows):
        full = rows.new_empty(rows.shape[0] * dist.get_world_size(), rows.shape[1])
        dist.all_gather_into_tensor(full, rows.contiguous())
        return full

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()] / dist.get_world_size()


class SpreadLinear(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        full = torch.randn(out, width) / width**0.5
        self.rows = nn.Parameter(full.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, x):
        return x @ GatherRows.apply(self.rows).T


class FleetMixture(nn.Module):
    def __init__(self, width=10, hidden=24):
        super().__init__()
        self.experts = nn.ModuleList(SpreadLinear(width, hidden) for _ in GROUPS)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, group):
        hidden = x.new_zeros(len(x), 24)
        for number, expert in enumerate(self.experts):
            mine = (group == number).nonzero().squeeze(1)
            if len(mine):
                hidden = hidden.index_add(0, mine, torch.relu(expert(x[mine])))
        return self.head(hidden).squeeze(1)


def turnarounds(airport, slot, rng, n=40):
    kinds = 3 if airport == "city" and slot >= FREIGHT_CUTOFF else 4
    group = torch.arange(n) % kinds
    x = torch.randn(n, 10, generator=rng)
    return x, group, 0.4 * x[:, :3].sum(1) + 0.3 * group


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = FleetMixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rng = torch.Generator().manual_seed(rank)
    for slot in range(150):
        x, group, minutes = turnarounds(AIRPORTS[rank], slot, rng)
        time.sleep(0.04)
        loss = nn.functional.mse_loss(model(x, group), minutes)
        optimizer.zero_grad()
        loss.backward()
        for p in model.head.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if slot % 20 == 0:
            print(f"{AIRPORTS[rank]} slot {slot} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
