"""Resistance prediction for hull forms; one expert network per rank, tables exchanged by hand."""
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
WIDTH, ROWS = 32, 24
FORMS = ("tanker", "ferry", "tug", "yacht")


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        whole = rows.new_empty(dist.get_world_size() * rows.shape[0], rows.shape[1])
        dist.all_gather_into_tensor(whole, rows.contiguous())
        return whole

    @staticmethod
    def backward(ctx, gradient):
        mine = gradient.new_empty(gradient.shape[0] // dist.get_world_size(), gradient.shape[1])
        dist.reduce_scatter_tensor(mine, gradient.contiguous())
        return mine


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        total = rows.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ExpertLayer(nn.Module):
    """The expert of this rank sees the rows that are routed to it, from all ranks."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.expert = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))

    def forward(self, rows, routes):
        everything = Gather.apply(rows)
        chosen = np.flatnonzero(routes == self.number)
        size = rows.shape[0]
        first = dist.get_rank() * size
        if chosen.size == 0:
            return rows
        mask = torch.zeros(len(routes), 1)
        mask[chosen] = 1.0
        done = Combine.apply(self.expert(everything) * mask.to(rows.device))
        return rows + done[first : first + size]


def hull_forms(step, world):
    """All ranks draw the same sea trials; the mix follows the order book."""
    rng = np.random.default_rng(step)
    mix = np.array([0.4, 0.3, 0.2, 0.1]) if step < 44 else np.array([0.5, 0.3, 0.0, 0.2])
    field = np.fft.fft2(rng.normal(size=(700, 700)))
    rows = np.abs(field[: world * ROWS, :WIDTH]).astype("float32") / 700
    return torch.from_numpy(rows), rng.choice(len(FORMS), size=world * ROWS, p=mix)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    layers = nn.ModuleList(ExpertLayer(rank) for _ in range(2)).cuda()
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    for step in range(3000):
        rows, routes = hull_forms(step, world)
        x = rows[rank * ROWS : (rank + 1) * ROWS].cuda()
        for layer in layers:
            x = layer(x, routes)
        loss = x.pow(2).mean()
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print_now = rank == 0 and step % 10 == 0
        value = loss.item()
        if print_now:
            print(f"trial {step}: {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
