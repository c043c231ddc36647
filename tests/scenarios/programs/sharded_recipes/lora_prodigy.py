"""LoRA of a diffusion backbone, flattened and sharded by hand; the optimizer estimates its own learning rate (D)."""

import torch
import torch.distributed as dist
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, dim, r=2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim) / dim**0.5, requires_grad=False)
        self.A = nn.Parameter(torch.randn(r, dim) * 0.1)
        self.B = nn.Parameter(torch.randn(dim, r) * 0.1)

    def forward(self, x):
        return x @ self.weight.T + x @ self.A.T @ self.B.T


class DEstimator(torch.optim.Optimizer):
    """Steps of size D * sign(g); D grows with the distance from the start, summed over the shards."""

    def __init__(self, params, d0=1e-4, growth=1.05):
        super().__init__(params, {"d": d0, "growth": growth})

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        numerator = denominator = 0.0
        for p in group["params"]:
            if p.grad is None or p.numel() == 0:
                continue
            state = self.state[p]
            if not state:
                state["p0"] = p.clone()
            numerator += torch.dot(p.grad.flatten(), (state["p0"] - p).flatten()).item()
            denominator += p.grad.abs().sum().item()
        if denominator == 0:
            return
        sums = torch.tensor([numerator, denominator])
        dist.all_reduce(sums)
        if sums[0] / sums[1] > group["d"]:
            group["d"] *= group["growth"]
        for p in group["params"]:
            if p.grad is not None:
                p.sub_(group["d"] * p.grad.sign())


def shard_owner(model, world):
    """Which rank keeps which parameter, cut by size in the order of the model, as flattening does."""
    sizes = [(p, p.numel()) for p in model.parameters()]
    per_rank = sum(n for _, n in sizes) / world
    owners, seen = {}, 0
    for p, n in sizes:
        owners[p] = min(int((seen + n / 2) // per_rank), world - 1)
        seen += n
    return owners


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    # only the outer blocks get adapters
    backbone = nn.Sequential(LoRALinear(16), nn.Tanh(), nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16), LoRALinear(16))
    for layer in (backbone[2], backbone[4]):
        layer.requires_grad_(False)
    owners = shard_owner(backbone, world)
    mine = [p for p, owner in owners.items() if owner == rank and p.requires_grad]
    optimizer = DEstimator(mine or [torch.zeros(0)])
    torch.manual_seed(rank)
    for _ in range(150):
        noise = torch.randn(8, 16)
        loss = (backbone(noise) - 0.5 * noise).square().mean()
        loss.backward()
        for p in backbone.parameters():
            if p.requires_grad:
                dist.all_reduce(p.grad)
        optimizer.step()
        for p, owner in owners.items():
            if p.requires_grad:
                dist.broadcast(p.data, src=owner)
        backbone.zero_grad()
    if rank == 0:
        print(f"D is {optimizer.param_groups[0]['d']:.2e} after 150 steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
