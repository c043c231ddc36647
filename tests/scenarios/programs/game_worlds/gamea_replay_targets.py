"""Q-learning on logged matches of a card game; the target net is broadcast from rank 0 now and then."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

GAMMA = 0.97
TARGET_EVERY = 64


def net(width=384):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(52, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 13))


class MatchLog:
    """Logged transitions; a transition counts only if the hand was played out."""

    def __init__(self, table, hands=32):
        self.table, self.hands = table, hands
        self.rng = torch.Generator().manual_seed(table)

    def sample(self, step):
        now, then = torch.randn(2, self.hands, 52, generator=self.rng)
        card = torch.randint(13, (self.hands, 1), generator=self.rng)
        gain = torch.randn(self.hands, generator=self.rng)
        played_out = torch.rand(self.hands, generator=self.rng) < 0.9
        if self.table == 3 and step == 170:
            played_out[:] = False  # the evening on which everybody conceded
        keep = played_out.nonzero().squeeze(1)
        return now[keep], card[keep], gain[keep], then[keep]


def td_loss(online, target, now, card, gain, then):
    with torch.no_grad():
        goal = gain + GAMMA * target(then).max(1).values
    return F.smooth_l1_loss(online(now).gather(1, card).squeeze(1), goal)


def average(parameters):
    world = dist.get_world_size()
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world


def refresh(target, online):
    with torch.no_grad():
        for to, source in zip(target.parameters(), online.parameters()):
            to.copy_(source)
            dist.broadcast(to, src=0)


def run(table, steps=3000):
    online, target = net(), net()
    optim = torch.optim.RMSprop(online.parameters(), lr=2e-4)
    matches = MatchLog(table)
    for step in range(1, steps + 1):
        now, card, gain, then = matches.sample(step)
        if len(now) == 0:
            print(f"table {table}: no hands at step {step}", flush=True)
            continue
        loss = td_loss(online, target, now, card, gain, then)
        optim.zero_grad()
        loss.backward()
        average(list(online.parameters()))
        optim.step()
        if step % TARGET_EVERY == 0:
            refresh(target, online)
            if table == 0:
                print(f"step {step} td {loss.item():.4f}", flush=True)


torch.set_num_threads(1)
dist.init_process_group("gloo")
run(int(os.environ["RANK"]))
dist.destroy_process_group()
