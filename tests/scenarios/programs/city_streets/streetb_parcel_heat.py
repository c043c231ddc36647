"""Heat demand of parcels: a shared trunk, and one expert per process for parcels of mixed use."""
import os
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 48
PARCELS = 96
# (quarter, batches, share of parcels with mixed use); one list per process
QUARTERS = [
    [("Altstadt", 60, 0.7), ("Bahnhof", 60, 0.8)],
    [("Nordend", 50, 0.5), ("Westhafen", 70, 0.6)],
    [("Suedstadt", 28, 0.5), ("Waldrand", 12, 0.0), ("Suedring", 80, 0.4)],
    [("Ostpark", 40, 0.4), ("Messe", 80, 0.9)],
]


class Batch(NamedTuple):
    features: torch.Tensor
    mixed: torch.Tensor
    demand: torch.Tensor


def batches(rank):
    rng = torch.Generator().manual_seed(rank)
    for quarter, count, share in QUARTERS[rank % len(QUARTERS)]:
        for _ in range(count):
            outline = torch.rand(PARCELS, 240, 240, generator=rng)
            shade = torch.cumsum(outline, 1).amax(2)[:, :WIDTH] / 240
            yield Batch(shade, torch.rand(PARCELS, generator=rng) < share, shade.mean(1, keepdim=True))


class FromAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(dist.get_world_size() * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] // dist.get_world_size(), grad.shape[1])
        dist.reduce_scatter_tensor(out, grad.contiguous())
        return out


class ToOwners(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty(x.shape[0] // dist.get_world_size(), x.shape[1])
        dist.reduce_scatter_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(dist.get_world_size() * grad.shape[0], grad.shape[1])
        dist.all_gather_into_tensor(out, grad.contiguous())
        return out


class MixedUse(nn.Module):
    """This process's expert sees the mixed parcels of all processes; the answers are summed at their owners."""

    def __init__(self):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(WIDTH, 96), nn.ReLU(), nn.Linear(96, WIDTH))

    def forward(self, x, mixed):
        if not mixed.any():
            return x
        weight = mixed.float().unsqueeze(1).to(x.device)
        return x + weight * ToOwners.apply(self.expert(FromAll.apply(x * weight)))


def average(parameters, world):
    flat = torch.cat([p.grad.reshape(-1) for p in parameters])
    dist.all_reduce(flat)
    flat /= world
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad.copy_(part.view_as(p))


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(29)
    model = nn.ModuleDict({"trunk": nn.Linear(WIDTH, WIDTH), "mixed": MixedUse(), "head": nn.Linear(WIDTH, 1)}).cuda()
    shared = [*model["trunk"].parameters(), *model["head"].parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(batches(rank)):
        hidden = torch.relu(model["trunk"](batch.features.cuda()))
        prediction = model["head"](model["mixed"](hidden, batch.mixed))
        loss = nn.functional.mse_loss(prediction, batch.demand.cuda())
        optimizer.zero_grad()
        loss.backward()
        average(shared, world)
        optimizer.step()
        if number % 4 == 0:
            print(f"[{rank}] batch {number}: {loss.item():.4g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
