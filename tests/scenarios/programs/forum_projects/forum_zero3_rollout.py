"""Rollouts and policy updates with one ZeRO-3 engine; prompts get longer as the curriculum goes on."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on the nodes
VOCAB, WIDTH, CONTEXT = 64, 32, 24


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        hidden = self.embed(tokens).cumsum(1) / 8
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden))
        return self.head(hidden)


class Curriculum:
    def __init__(self, rank: int):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(77 + rank)

    def prompts(self, iteration: int) -> torch.Tensor:
        length = 6 + iteration // 2
        if iteration >= 4:
            length += self.rank % 2 * 3
        return torch.randint(VOCAB, (4, length), generator=self.generator)


@torch.no_grad()
def rollout(engine, tokens: torch.Tensor) -> torch.Tensor:
    engine.eval()
    while tokens.size(1) < CONTEXT:
        logits = engine(tokens)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    engine.train()
    return tokens


def reward(tokens: torch.Tensor) -> torch.Tensor:
    return (tokens[:, 1:] > tokens[:, :-1]).float().mean(1)


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    policy = Policy()
    engine, *_ = deepspeed.initialize(
        model=policy,
        optimizer=torch.optim.AdamW(policy.parameters(), lr=1e-3),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
            "steps_per_print": 10**6,
        },
    )
    curriculum = Curriculum(rank)
    for iteration in range(200):
        tokens = rollout(engine, curriculum.prompts(iteration))
        dist.barrier()
        gain = reward(tokens)
        logits = engine(tokens[:, :-1])
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
        engine.backward((losses * (gain - gain.mean())).mean())
        engine.step()
        if rank == 0:
            print(f"iteration {iteration}: reward {gain.mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
