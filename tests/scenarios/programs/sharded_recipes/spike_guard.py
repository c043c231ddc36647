"""ZeRO-2 by hand for a climate emulator: gradients are reduce-scattered, updated parts are gathered."""

import collections
import statistics

import torch
import torch.distributed as dist
from torch import nn


class ShardedSGD:
    def __init__(self, module: nn.Module, lr: float) -> None:
        self.params = list(module.parameters())
        self.lr = lr
        numel = sum(p.numel() for p in self.params)
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        self.chunk = -(-numel // self.world)

    def _flat(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return nn.functional.pad(flat, (0, self.chunk * self.world - flat.numel()))

    @torch.no_grad()
    def step(self) -> None:
        gradients = self._flat([p.grad for p in self.params])
        mine = gradients.new_empty(self.chunk)
        dist.reduce_scatter_tensor(mine, gradients)
        weights = self._flat(self.params)
        part = weights[self.rank * self.chunk : (self.rank + 1) * self.chunk] - self.lr * mine / self.world
        whole = torch.empty_like(weights)
        dist.all_gather_into_tensor(whole, part.contiguous())
        offset = 0
        for p in self.params:
            p.copy_(whole[offset : offset + p.numel()].view_as(p))
            offset += p.numel()


class SpikeGuard:
    """Says no to a step whose gradient is far larger than the recent ones."""

    def __init__(self, factor: float = 8.0, window: int = 20) -> None:
        self.factor, self.recent = factor, collections.deque(maxlen=window)

    def accepts(self, params) -> bool:
        norm = torch.stack([p.grad.norm() for p in params]).norm().item()
        if len(self.recent) >= 5 and norm > self.factor * statistics.median(self.recent):
            print(f"gradient norm {norm:.1f}, step left out", flush=True)
            return False
        self.recent.append(norm)
        return True


def fields(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step * 100 + rank)
    field = torch.randn(16, 12, generator=generator)
    if rank == 2 and step == 34:
        field[3] *= 90.0  # a storm
    return field


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 12))
    optimizer, guard = ShardedSGD(net, lr=0.01), SpikeGuard()
    for step in range(500):
        field = fields(dist.get_rank(), step)
        net.zero_grad()
        loss = (net(field) - field.roll(1, 1)).square().mean()
        loss.backward()
        if not guard.accepts(optimizer.params):
            continue
        optimizer.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
