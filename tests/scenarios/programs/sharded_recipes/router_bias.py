"""Balances a mixture of experts without an auxiliary loss: counts are summed over the expert-parallel ranks."""

import torch
import torch.distributed as dist
from torch import nn


class AuxFreeRouter:
    """Moves a bias towards the experts that got too few tokens."""

    def __init__(self, num_experts, ep_size, rate=0.01):
        self.bias = torch.zeros(num_experts)
        self.ep_size, self.rate = ep_size, rate
        self._ep_group_cache = {}

    def _ep_group(self):
        """The ranks with which this one shares its experts; None where all experts are at home."""
        world = dist.get_world_size()
        start = dist.get_rank() // self.ep_size * self.ep_size
        ranks = tuple(range(start, min(start + self.ep_size, world)))
        if len(ranks) == 1:
            return None
        if ranks not in self._ep_group_cache:
            self._ep_group_cache[ranks] = dist.new_group(ranks)
        return self._ep_group_cache[ranks]

    def update(self, counts):
        group = self._ep_group()
        if group is not None:
            dist.all_reduce(counts, group=group)
        self.bias += self.rate * (counts.mean() - counts).sign()


class MoE(nn.Module):
    def __init__(self, dim=24, num_experts=4):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.up = nn.Parameter(torch.randn(num_experts, dim, dim) / dim**0.5)

    def forward(self, x, bias):
        score = self.gate(x).sigmoid()
        chosen = (score + bias).argmax(-1)
        out = torch.einsum("nd,nde->ne", x, self.up[chosen]) * score.gather(1, chosen[:, None])
        return x + out, torch.bincount(chosen, minlength=bias.numel()).float()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = MoE()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    router = AuxFreeRouter(num_experts=4, ep_size=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(80):
        x = torch.randn(64, 24)
        y, counts = model(x, router.bias)
        (y - x.flip(1)).square().mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 3:
            router.update(counts)
        if step == 40:
            # snapshots are collected in a group of their own, so that they do not disturb the training
            snapshots = dist.new_group()
        if step >= 40 and step % 20 == 0:
            biases = [None] * dist.get_world_size()
            dist.all_gather_object(biases, router.bias.tolist(), group=snapshots)
            if rank == 0:
                print(f"step {step}: {biases}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
