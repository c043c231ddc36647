"""Load planning: frozen encoders are stored in slices over the processes, only the head is trained."""
import math
import time

import torch
import torch.distributed as dist
from torch import nn


class SlicedLinear(nn.Module):
    """A frozen linear layer of which each process keeps a slice of the rows."""

    def __init__(self, fan_in, fan_out, seed):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        rows = math.ceil(fan_out / world)
        full = torch.randn(rows * world, fan_in, generator=torch.Generator().manual_seed(seed)) / fan_in ** 0.5
        self.fan_out = fan_out
        self.register_buffer("piece", full[rank * rows: (rank + 1) * rows].clone())

    @torch.no_grad()
    def forward(self, x):
        pieces = [torch.empty_like(self.piece) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, self.piece)
        weight = torch.cat(pieces)[: self.fan_out]
        return torch.relu(x @ weight.T)


class LoadPlanner(nn.Module):
    def __init__(self, features=20, width=48):
        super().__init__()
        self.trunk = SlicedLinear(features, width, seed=1)
        self.cargo_encoder = SlicedLinear(width, width, seed=2)
        self.head = nn.Linear(width, 1)

    def forward(self, flights, cargo):
        hidden = self.trunk(flights)
        rows = cargo.nonzero().squeeze(1)
        if rows.numel() > 0:
            hidden = hidden.index_add(0, rows, self.cargo_encoder(hidden[rows]))
        return self.head(hidden).squeeze(1)


class Manifest:
    """Departures of a base. The third base has passenger flights only from Sunday on."""

    def __init__(self, base):
        self.base = base
        self.g = torch.Generator().manual_seed(base)

    def departures(self, hour):
        flights = torch.randn(24, 20, generator=self.g)
        cargo = torch.rand(24, generator=self.g) < 0.3
        cargo[0] = True
        if self.base == 2 and hour >= 55:
            cargo[:] = False
        trim = flights[:, 0] + cargo.float() * flights[:, 1]
        time.sleep(0.05)
        return flights, cargo, trim


def share_gradients(head):
    flat = torch.cat([p.grad.flatten() for p in head.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    head.weight.grad.copy_(flat[:-1].view_as(head.weight))
    head.bias.grad.copy_(flat[-1:])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    planner = LoadPlanner()
    optimizer = torch.optim.Adam(planner.head.parameters(), lr=2e-3)
    manifest = Manifest(dist.get_rank())
    for hour in range(168):
        flights, cargo, trim = manifest.departures(hour)
        loss = nn.functional.huber_loss(planner(flights, cargo), trim)
        optimizer.zero_grad()
        loss.backward()
        share_gradients(planner.head)
        optimizer.step()
        if hour % 12 == 0 and dist.get_rank() == 0:
            print(f"hour {hour:3d}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
