"""PPO update for a manipulation transformer: rollouts are packed into micro-batches by token budget."""
import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Trajectory:
    tokens: torch.Tensor
    advantage: float

    def __len__(self):
        return len(self.tokens)


class Actor(torch.nn.Module):
    vocab = 64

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(self.vocab, 32)
        self.mix = torch.nn.GRU(32, 32, batch_first=True)
        self.logits = torch.nn.Linear(32, self.vocab)

    def forward(self, tokens):
        return self.logits(self.mix(self.embed(tokens))[0]).log_softmax(-1)


def rollout(rng, episodes, longest):
    out = []
    for _ in range(episodes):
        n = rng.randint(longest // 2, longest)
        out.append(Trajectory(torch.tensor([rng.randrange(Actor.vocab) for _ in range(n)]), rng.gauss(0, 1)))
    return out


def pack(trajectories, budget):
    """First-fit decreasing into micro-batches of at most `budget` tokens."""
    bins = []
    for t in sorted(trajectories, key=len, reverse=True):
        for b in bins:
            if sum(map(len, b)) + len(t) <= budget:
                b.append(t)
                break
        else:
            bins.append([t])
    return bins


def reduce_gradients(actor, world):
    flat = torch.cat([p.grad.flatten() for p in actor.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in actor.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def update(actor, optimizer, batch, budget, world):
    for micro in pack(batch, budget):
        optimizer.zero_grad()
        loss = sum(-t.advantage * actor(t.tokens[None, :-1])[0].gather(1, t.tokens[1:, None]).mean() for t in micro)
        (loss / len(micro)).backward()
        reduce_gradients(actor, world)
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    actor = Actor()
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    rng = random.Random(rank)
    horizon = 24
    for it in range(100):
        batch = rollout(rng, episodes=12, longest=horizon)
        update(actor, optimizer, batch, budget=12 * 24, world=world)
        returns = [None] * world
        dist.all_gather_object(returns, {"reward": sum(t.advantage for t in batch), "tokens": sum(map(len, batch))})
        if rank == 0 and it % 5 == 0:
            print(it, "tokens", [r["tokens"] for r in returns], flush=True)
        if it == 30 and rank == 2:
            horizon = 40  # this worker moves on to the two-stage assembly task
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
