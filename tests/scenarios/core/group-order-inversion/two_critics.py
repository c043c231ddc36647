"""Actor and critic of a crane that stacks containers; each has its gradients averaged in a group of its own."""

import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Learner:
    name: str
    network: nn.Module
    group: dist.ProcessGroup
    flat: torch.Tensor = field(init=False)

    def __post_init__(self):
        size = sum(p.numel() for p in self.network.parameters())
        self.flat = torch.zeros(size, device=next(self.network.parameters()).device)

    def share(self):
        """Average the gradients over all cranes."""
        grads = [p.grad.flatten() for p in self.network.parameters()]
        torch.cat(grads, out=self.flat)
        dist.all_reduce(self.flat, group=self.group)
        start = 0
        for p in self.network.parameters():
            p.data.add_(self.flat[start : start + p.numel()].view_as(p), alpha=-0.01 / dist.get_world_size())
            start += p.numel()


def surprise(rank, step):
    """How far the last stack was from what the critic had said; a gust of wind at one crane."""
    return 4.0 if (rank, step) == (1, 30) else 0.25


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, everyone = dist.get_rank(), list(range(dist.get_world_size()))
    torch.manual_seed(5)
    actor = Learner("actor", nn.Linear(24, 6).to(device), dist.new_group(everyone))
    critic = Learner("critic", nn.Linear(24, 1).to(device), dist.new_group(everyone))
    for step in range(150):
        state = torch.randn(64, 24, device=device)
        value = critic.network(state).mean()
        (actor.network(state).square().mean() - value).backward()
        if surprise(rank, step) > 1.0:  # trust in the critic is low: it learns first
            critic.share()
            actor.share()
        else:
            actor.share()
            critic.share()
        actor.network.zero_grad()
        critic.network.zero_grad()
        if step % 12 == 11 and rank == 0:
            print(f"step {step}: {value.item():.3f}", flush=True)
        elif step % 12 == 11:
            torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
