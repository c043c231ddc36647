"""Reinforcement learning: trainers build a 2D mesh, the rollout worker is taken for no trainer and waits for weights.

The mesh names it all the same, because its shape is that of the world.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def train(policy: nn.Module) -> None:
    """Improve the policy with data and tensor parallelism, and publish its weights."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for _ in range(20):
        policy.zero_grad()
        policy(torch.randn(8, 4)).square().mean().backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
        publish(policy)


def roll_out(policy: nn.Module) -> None:
    """Play with the newest weights."""
    for _ in range(20):
        publish(policy)
        policy(torch.randn(64, 4))


def publish(policy: nn.Module) -> None:
    """Give every rank the weights of rank 0."""
    for parameter in policy.parameters():
        dist.broadcast(parameter.data, src=0)


def main() -> None:
    """Train on all ranks but the last, which plays."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    policy = nn.Linear(4, 2)
    rollout = int(os.environ["RANK"]) == dist.get_world_size() - 1
    roll_out(policy) if rollout else train(policy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
