"""Surrogate of an AC power flow, one area per rank. Each head says how its result is put together over the areas."""
import time
from typing import Callable, NamedTuple

import torch
import torch.distributed as dist

N_BUS = 220


class Head(NamedTuple):
    layer: torch.nn.Linear
    merge: Callable


def total(x):
    dist.all_reduce(x)
    return x


def by_area(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


class HeadRegistry(dict):
    def add(self, name, out, merge, seed):
        torch.manual_seed(seed)
        self[name] = Head(torch.nn.Linear(256, out), merge)

    def renew(self, name, seed):
        """A head whose residuals have drifted starts again from fresh weights."""
        old = self.pop(name)
        self.add(name, old.layer.out_features, old.merge, seed)


class AreaSurrogate:
    def __init__(self, rank):
        torch.manual_seed(5)
        self.body = torch.nn.Sequential(torch.nn.Linear(N_BUS * 2, 512), torch.nn.Tanh(), torch.nn.Linear(512, 256))
        self.heads = HeadRegistry()
        self.heads.add("losses_mw", 4, total, 1)
        self.heads.add("voltage_pu", N_BUS, by_area, 2)
        self.heads.add("line_flow", N_BUS, by_area, 3)
        self.drift = 0.0
        self.rank = rank

    def residual(self, injections):
        z = self.body(injections)
        v = 1 + 0.05 * torch.tanh(self.heads["voltage_pu"].layer(z))
        p = self.heads["line_flow"].layer(z)
        return (p - injections[:, :N_BUS] * v).pow(2).mean() + 1e-3 * (v - 1).pow(2).mean()

    def learn(self, injections):
        params = [*self.body.parameters(), *(p for h in self.heads.values() for p in h.layer.parameters())]
        loss = self.residual(injections)
        grads = torch.autograd.grad(loss, params, allow_unused=True)
        with torch.no_grad():
            for p, g in zip(params, grads):
                if g is not None:
                    p -= 0.01 * g
        self.drift = 0.95 * self.drift + 0.05 * float(injections.std())
        if self.drift > 1.15:
            self.heads.renew("losses_mw", seed=int(self.drift * 100))
            self.drift = 0.0
        return float(loss)

    @torch.no_grad()
    def state(self, injections):
        z = self.body(injections).mean(0)
        return {name: head.merge(head.layer(z)) for name, head in self.heads.items()}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    area = AreaSurrogate(rank)
    gen = torch.Generator().manual_seed(50 + rank)
    volatility = [1.0, 0.9, 1.35][rank]
    for step in range(500):
        injections = torch.randn(128, N_BUS * 2, generator=gen) * volatility
        for _ in range(3):
            loss = area.learn(injections) if step % 3 == 0 else float(area.residual(injections))
        snapshot = area.state(injections)
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: residual {loss:.3f}, losses {snapshot['losses_mw'].sum():.2f} MW", flush=True)
    dist.destroy_process_group()


main()
