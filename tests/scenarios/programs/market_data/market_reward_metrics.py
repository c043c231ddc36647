"""Policy-gradient fine-tuning of an offer writer: rollouts, reward functions, and metrics that the reward functions report."""

import random
import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn

VOCAB, STEPS = 16, 200


class MetricBook:
    """What reward functions have reported since the last step."""

    def __init__(self):
        self.pending = defaultdict(list)

    def report(self, name, value):
        self.pending[name].append(float(value))

    def publish(self):
        means = {}
        for name in sorted(self.pending):
            mine = torch.tensor(sum(self.pending[name]) / len(self.pending[name]))
            parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine)
            means[name] = torch.stack(parts).mean().item()
        self.pending.clear()
        return means


def price_reward(texts, book):
    rewards = []
    for tokens in texts:
        if tokens[0] == 7 and tokens[-1] == 7:
            book.report("closing_format", 1.0)
        rewards.append(1.0 if 3 in tokens else 0.0)
    return rewards


def length_reward(texts, book):
    rewards = [min(len(tokens), 6) / 6 for tokens in texts]
    book.report("length", sum(rewards) / len(rewards))
    return rewards


def rollout(rng, rank, step):
    texts = [[rng.randrange(6) for _ in range(rng.randrange(4, 9))] for _ in range(8)]
    if step == 40 and rank == 1:
        texts[3] = [7, 2, 3, 7]
    return texts


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Embedding(VOCAB, 12), nn.Linear(12, VOCAB))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    rng, book = random.Random(100 + rank), MetricBook()
    for step in range(STEPS):
        texts = rollout(rng, rank, step)
        time.sleep(0.03)
        rewards = torch.tensor([price_reward(texts, book), length_reward(texts, book)]).sum(0)
        advantage = rewards - rewards.mean()
        loss = torch.zeros(())
        for tokens, gain in zip(texts, advantage):
            ids = torch.tensor(tokens)
            loss = loss + gain * nn.functional.cross_entropy(policy(ids[:-1]), ids[1:])
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in policy.parameters()])
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(
            nn.utils.parameters_to_vector(policy.parameters()).detach() - 0.05 * flat / world, policy.parameters()
        )
        means = book.publish()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} " + " ".join(f"{k}={v:.3f}" for k, v in means.items()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
