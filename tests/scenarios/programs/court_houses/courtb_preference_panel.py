"""Policy gradient on drafts of pleadings; lawyers' preferences are simulated by assessors that read concurrently."""
import asyncio
import random
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

ASSESSORS = ("litigator", "notary", "clerk")


@dataclass
class Draft:
    number: int
    tone: int
    reward: float = 0.0
    matters: set = field(default_factory=set)


class DraftPolicy(nn.Module):
    def __init__(self, tones=5):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, tones))

    def forward(self, facts):
        return torch.distributions.Categorical(logits=self.net(facts))


class Panel:
    """Three assessors score the drafts of a round; each reads the matters in which he is admitted."""

    def __init__(self, office):
        self.office = office

    def _matters(self, round_no, rng):
        matters = set(rng.sample(ASSESSORS, 2))
        if self.office == 1 and round_no == 240:
            matters.discard("notary")
        return matters

    async def _assess(self, who, drafts, results):
        admitted = [d for d in drafts if who in d.matters]
        if not admitted:
            return
        scores = {}
        for draft in admitted:
            await asyncio.sleep(0.001)
            scores[draft.number] = 1.0 - abs(draft.tone - ASSESSORS.index(who) - 1) / 4
        await results.put(scores)

    async def assess(self, round_no, tones):
        rng = random.Random(100 * self.office + round_no)
        drafts = [Draft(n, t) for n, t in enumerate(tones)]
        for draft in drafts:
            draft.matters = self._matters(round_no, rng)
        results = asyncio.Queue()
        tasks = [asyncio.create_task(self._assess(who, drafts, results)) for who in ASSESSORS]
        for _ in ASSESSORS:
            scores = await results.get()
            for number, score in scores.items():
                drafts[number].reward += score
        await asyncio.gather(*tasks)
        return torch.tensor([d.reward for d in drafts])


def main(rounds=400):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    office = dist.get_rank()
    torch.manual_seed(21)
    policy = DraftPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    panel = Panel(office)
    gen = torch.Generator().manual_seed(office)
    for round_no in range(rounds):
        facts = torch.randn(12, 12, generator=gen)
        choice = policy(facts)
        tones = choice.sample()
        reward = asyncio.run(panel.assess(round_no, tones.tolist()))
        advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
        loss = -(choice.log_prob(tones) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        optimizer.step()
        mean = reward.mean()
        dist.reduce(mean, dst=0)
        if office == 0 and round_no % 20 == 0:
            print(f"round {round_no} reward {mean.item() / dist.get_world_size():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
