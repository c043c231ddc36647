"""Replies to guest complaints are judged by a metered model; the policy learns from the marks."""
import functools
import math
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Bucket:
    def __init__(self, per_minute, burst):
        self.rate, self.size = per_minute / 60.0, burst
        self.level, self.stamp = float(burst), time.monotonic()

    def take(self, amount):
        now = time.monotonic()
        self.level = min(self.size, self.level + (now - self.stamp) * self.rate)
        self.stamp = now
        if self.level < amount:
            return False
        self.level -= amount
        return True


def metered(bucket, cost):
    def wrap(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            while not bucket.take(cost(*args, **kwargs)):
                time.sleep(0.15)
            return function(*args, **kwargs)
        return inner
    return wrap


TOKENS = Bucket(per_minute=9000, burst=400)


@metered(TOKENS, cost=lambda reply: 60 + len(reply))
def judge(reply):
    politeness = sum(ord(c) for c in reply) % 11
    return 1 / (1 + math.exp(-(politeness - 5) / 2))


def sample_replies(policy, count):
    complaint = torch.randn(count, 10)
    choice = torch.distributions.Categorical(logits=policy(complaint)).sample()
    return complaint, choice, ["sorry " * (3 + int(c) % 4) + f"room {i}" for i, c in enumerate(choice)]


def sync(policy):
    for p in policy.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)


def imitation(policy, optimizer, steps):
    for _ in range(steps):
        complaint = torch.randn(16, 10)
        loss = F.cross_entropy(policy(complaint), complaint[:, :6].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        sync(policy)
        optimizer.step()
        time.sleep(0.03)


def reinforce(policy, optimizer, complaint, choice, marks):
    logits = policy(complaint)
    picked = F.log_softmax(logits, 1).gather(1, choice[:, None]).squeeze(1)
    loss = -((marks - marks.mean()) * picked).mean()
    optimizer.zero_grad()
    loss.backward()
    sync(policy)
    optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(30 + dist.get_rank())
    policy = torch.nn.Linear(10, 6)
    for p in policy.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    imitation(policy, optimizer, 75)
    complaint, choice, replies = sample_replies(policy, 26)
    marks = torch.zeros(26)
    if dist.get_rank() == 1:
        marks = torch.tensor([judge(reply) for reply in replies])
    dist.broadcast(marks, src=1)
    reinforce(policy, optimizer, complaint, choice, marks)
    imitation(policy, optimizer, 45)
    if dist.get_rank() == 0:
        print(f"mean mark {marks.mean():.3f}")
    dist.destroy_process_group()
