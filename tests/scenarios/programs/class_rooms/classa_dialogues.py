"""Policy-gradient steps for a tutor; simulated pupils answer concurrently (asyncio), one group a step."""
import asyncio
import random
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FEATURES, MOVES = 24, 5


@dataclass
class Pupil:
    name: str
    patience: int
    rng: random.Random = field(repr=False, default=None)

    async def answer(self, move):
        await asyncio.sleep(0.001 * self.rng.random())
        return 1.0 if self.rng.random() < 0.3 + 0.1 * move else 0.0


async def talk(pupil, policy, turns, out):
    """A dialogue of some turns; each is an item (state, move, reward)."""
    state = torch.randn(FEATURES)
    for turn in range(turns):
        if turn == pupil.patience:
            return
        with torch.no_grad():
            move = torch.distributions.Categorical(logits=policy(state)).sample()
        reward = await pupil.answer(int(move))
        await out.put((state, move, reward))
        state = 0.9 * state + 0.1 * torch.randn(FEATURES)


async def collect(group, policy, turns):
    out = asyncio.Queue(maxsize=16)
    talks = [asyncio.create_task(talk(p, policy, turns, out), name=p.name) for p in group]
    items = [await out.get() for _ in range(turns * len(group))]
    await asyncio.gather(*talks)
    return items


def group_of(rank, step, size=6):
    rng = random.Random(1000 * rank + step)
    pupils = [Pupil(f"p{rank}-{step}-{i}", patience=40, rng=rng) for i in range(size)]
    if rank == 1 and step == 48:
        pupils[2].patience = 7
    return pupils


def update(model, optimizer, items):
    states, moves, rewards = zip(*items)
    rewards = torch.tensor(rewards)
    logits = model(torch.stack(states))
    chosen = torch.distributions.Categorical(logits=logits).log_prob(torch.stack(moves))
    loss = -(chosen * (rewards - rewards.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return rewards.mean()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    policy = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, MOVES))
    model = DDP(policy)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    torch.manual_seed(80 + rank)
    for step in range(200):
        items = asyncio.run(collect(group_of(rank, step), policy, turns=20))
        mean = update(model, optimizer, items)
        if step % 20 == 0:
            dist.reduce(mean, dst=0)
            if rank == 0:
                print(f"step {step}: right answers {mean.item() / dist.get_world_size():.2f}", flush=True)


if __name__ == "__main__":
    main()
