"""Mixture of experts for generation by source: one expert (wind, solar, thermal) lives on each rank."""
import enum
import time

import torch
import torch.distributed as dist
from torch import nn


class Source(enum.IntEnum):
    WIND = 0
    SOLAR = 1
    THERMAL = 2


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class SourceExperts(nn.Module):
    def __init__(self, d, capacity):
        super().__init__()
        self.world, self.capacity = dist.get_world_size(), capacity
        self.expert = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def dispatch(self, x, source):
        """Rows of each source in a buffer of fixed capacity; what does not fit stays as it is."""
        slots = x.new_zeros(self.world, self.capacity, x.shape[1])
        where = []
        for s in range(self.world):
            rows = (source == s).nonzero().flatten()[: self.capacity]
            slots[s, : len(rows)] = x[rows]
            where.append(rows)
        return slots, where

    def forward(self, x, source):
        metered = source >= 0
        if not metered.any():
            return x
        slots, where = self.dispatch(x, source)
        arrived = Exchange.apply(slots)
        back = Exchange.apply(self.expert(arrived))
        out = x.clone()
        for s, rows in enumerate(where):
            out = out.index_add(0, rows, back[s, : len(rows)])
        return out


class GenerationModel(nn.Module):
    def __init__(self, d=128):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Linear(40, d), nn.Linear(d, 1)
        self.experts = SourceExperts(d, capacity=96)

    def forward(self, x, source):
        return self.head(self.experts(torch.relu(self.embed(x)), source)).squeeze(1)

    def shared(self):
        return [*self.embed.parameters(), *self.head.parameters()]


def quarter_hour(rank, step, gen, n=240):
    x = torch.randn(n, 40, generator=gen)
    source = torch.randint(0, len(Source), (n,), generator=gen)
    if rank == 1 and step % 96 == 60:
        source[:] = -1  # change of the metering point ids at midnight
    return x, source


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = GenerationModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(40 + rank)
    for step in range(1, 2000):
        x, source = quarter_hour(rank, step, gen)
        loss = (model(x, source) - x[:, :8].sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in model.shared():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        time.sleep(0.03)
        if rank == 0 and step % 12 == 0:
            print(f"quarter {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
