"""Reinforcement learning, one rank a prompt: rollouts with an FSDP2 policy, then the rewards of all ranks."""

import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Policy(nn.Module):
    def __init__(self, vocabulary: int = 50, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU()) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)

    def shard(self, mesh):
        for layer in self.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(self, mesh=mesh)


class Verifier:
    """Decides on the host after each token whether an answer is complete."""

    def __init__(self, rank: int) -> None:
        self.random = random.Random(rank)
        self.rank = rank

    def new_question(self, difficulty: int) -> None:
        self.needed = difficulty if difficulty < 9 else difficulty + (0 if self.rank == 1 else 5)

    def complete(self, answer: list[int]) -> bool:
        return len(answer) >= self.needed


@torch.no_grad()
def rollout(policy: Policy, verifier: Verifier, limit: int) -> list[int]:
    tokens = torch.zeros(1, 1, dtype=torch.int64)
    answer: list[int] = []
    while len(answer) < limit and not verifier.complete(answer):
        logits = policy(tokens.cuda())
        best = logits[0, -1].argmax().cpu()
        answer.append(verifier.random.randrange(50) if not 0 <= int(best) < 50 else int(best))
        tokens = torch.tensor([[0, *answer]])
        time.sleep(0.05)
    return answer


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
    rank, world = dist.get_rank(), dist.get_world_size()
    policy = Policy().cuda().shard(mesh)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2, foreach=False)
    verifier = Verifier(rank)
    for iteration in range(50):
        verifier.new_question(difficulty=3 + iteration)
        answer = rollout(policy, verifier, limit=64)
        reward = torch.tensor([float(len(set(answer)))], device="cuda")
        dist.all_reduce(reward, group=mesh.get_group())
        baseline = reward.item() / world
        logits = policy(torch.tensor([[0, *answer]]).cuda())
        loss = (logits.mean() * (len(answer) - baseline)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"iteration {iteration}: mean reward {baseline:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
