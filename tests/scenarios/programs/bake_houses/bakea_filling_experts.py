"""Shelf life of filled pralines: a shared trunk, and one expert for fillings per rank (tokens travel to their expert)."""
import os
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn as nn

cfg = SimpleNamespace(dim=16, capacity=6, lr=3e-3, rounds=400, pieces=18)

# part of the pieces that are filled, by line and quarter of the shift
FILLED = {0: (0.8, 0.7, 0.9, 0.6), 1: (0.6, 0.8, 0.7, 0.7), 2: (0.5, 0.4, 0.0, 0.6)}


class Travel(torch.autograd.Function):
    """Sends equal shares of the rows to every rank; gradients travel back the same way."""

    @staticmethod
    def forward(ctx, rows):
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        back = torch.empty_like(grad)
        dist.all_to_all_single(back, grad.contiguous())
        return back


class FillingExperts(nn.Module):
    """Expert r (nougat, marzipan, liqueur) lives on rank r."""

    def __init__(self, dim, capacity, experts):
        super().__init__()
        self.capacity, self.experts = capacity, experts
        self.expert = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, hidden, filling):
        rows = (filling >= 0).nonzero().flatten()
        if rows.numel() == 0:
            return hidden
        slots = hidden.new_zeros(self.experts * self.capacity, hidden.shape[1])
        taken = []
        for e in range(self.experts):
            mine = rows[filling[rows] == e][: self.capacity]
            taken.append((mine, torch.arange(len(mine)) + e * self.capacity))
        source = torch.cat([m for m, _ in taken])
        place = torch.cat([p for _, p in taken])
        slots = slots.index_copy(0, place, hidden[source])
        done = Travel.apply(self.expert(Travel.apply(slots)))
        return hidden.index_add(0, source, done[place])


class ShelfLife(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.trunk = nn.Linear(cfg.dim, cfg.dim)
        self.fillings = FillingExperts(cfg.dim, cfg.capacity, world)
        self.days = nn.Linear(cfg.dim, 1)

    def shared(self):
        return [*self.trunk.parameters(), *self.days.parameters()]

    def forward(self, x, filling):
        return self.days(self.fillings(torch.relu(self.trunk(x)), filling))


def pieces(line, number, gen):
    part = FILLED[line][number // 24 % 4]
    filled = torch.rand(cfg.pieces, generator=gen) < part
    if part:
        filled[0] = True
    kind = torch.randint(0, 3, (cfg.pieces,), generator=gen)
    return torch.randn(cfg.pieces, cfg.dim, generator=gen), torch.where(filled, kind, torch.full_like(kind, -1))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    line, world = int(os.environ["RANK"]), dist.get_world_size()
    torch.manual_seed(31)
    model = ShelfLife(world)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    gen = torch.Generator().manual_seed(500 + line)
    for number in range(cfg.rounds):
        time.sleep(0.05)
        x, filling = pieces(line, number, gen)
        loss = (model(x, filling) - x.mean(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        for p in model.shared():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= world
        opt.step()
        if number % 12 == 0 and line == 0:
            print(f"round {number} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
