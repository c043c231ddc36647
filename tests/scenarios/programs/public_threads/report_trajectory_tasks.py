"""Reinforcement learning with asyncio: one task per environment group, and a learner that takes what is ready."""

import asyncio
import random

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
GROUPS = 4


class Sandbox:
    """Runs a snippet of the policy's, and says how it went."""

    def __init__(self, name, rng):
        self.name = name
        self.rng = rng

    async def run(self, question):
        await asyncio.sleep(0.02 + 0.02 * self.rng.random())
        answer = {"score": self.rng.random(), "log": f"{self.name}: ok"}
        if question["kind"] == "shell":
            answer = {"log": f"{self.name}: command not found"}
        return answer


class Questions:
    def __init__(self, rank):
        self.rank = rank
        self.count = 0

    def draw(self):
        self.count += 1
        kind = "shell" if self.rank == 1 and self.count == 82 else "python"
        return {"kind": kind, "features": torch.randn(10)}


async def rollout_group(sandbox, question, queue):
    answers = [await sandbox.run(question) for _ in range(2)]
    scores = [answer["score"] for answer in answers]
    await queue.put((question["features"], sum(scores) / len(scores)))


class Learner:
    def __init__(self):
        torch.manual_seed(0)
        self.value = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.value.parameters(), lr=1e-2)

    def update(self, minibatch):
        x = torch.stack([features for features, _ in minibatch])
        y = torch.tensor([score for _, score in minibatch])
        loss = (self.value(x).squeeze(1) - y).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.value.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


async def take(queue, count):
    return [await queue.get() for _ in range(count)]


async def train(iterations):
    rank = dist.get_rank()
    questions, queue, learner = Questions(rank), asyncio.Queue(), Learner()
    sandboxes = [Sandbox(f"box-{rank}-{i}", random.Random(10 * rank + i)) for i in range(GROUPS)]
    running = set()
    for iteration in range(iterations):
        for sandbox in sandboxes:
            task = asyncio.create_task(rollout_group(sandbox, questions.draw(), queue))
            running.add(task)
            task.add_done_callback(running.discard)
        minibatch = await take(queue, GROUPS)
        loss = learner.update(minibatch)
        if rank == 0 and iteration % 5 == 0:
            print(f"iteration {iteration} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    asyncio.run(train(2000))
    dist.destroy_process_group()
