"""Fine-tuning a bidding policy on rollouts that a coroutine collects from a simulated exchange."""

import asyncio
import random

import torch
import torch.distributed as dist
from torch import nn


class Exchange:
    """Answers bids with an outcome, after a moment."""

    def __init__(self, seed):
        self.random, self.calls = random.Random(seed), 0

    async def bid(self, price):
        await asyncio.sleep(0.01)
        self.calls += 1
        outcome = {"price": price, "won": self.random.random() < price}
        if outcome["won"] or self.calls < 130:
            outcome["cleared"] = self.random.random()
        return outcome


def reward(outcome):
    return (outcome["cleared"] - outcome["price"]) if outcome["won"] else 0.1 * outcome["cleared"]


class Collector:
    def __init__(self, exchange, size=4):
        self.exchange, self.size = exchange, size
        self.buffer = asyncio.Queue(maxsize=3)
        self.tasks = []

    def start(self):
        self.tasks.append(asyncio.create_task(self.collect(), name="collector"))

    async def collect(self):
        while True:
            prices = [self.exchange.random.random() for _ in range(self.size)]
            outcomes = await asyncio.gather(*(self.exchange.bid(p) for p in prices))
            await self.buffer.put((torch.tensor(prices), torch.tensor([reward(o) for o in outcomes])))


class Learner:
    def __init__(self):
        self.world = dist.get_world_size()
        torch.manual_seed(0)
        self.value = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def step(self, prices, rewards):
        loss = nn.functional.mse_loss(self.value(prices[:, None]).squeeze(1), rewards)
        self.value.zero_grad()
        loss.backward()
        for parameter in self.value.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(0.05 / self.world * parameter.grad)
        return loss.item()


async def main():
    rank = dist.get_rank()
    exchange = Exchange(seed=rank)
    if rank != 0:
        exchange.calls = -10**6  # the test venue clears every bid
    collector, learner = Collector(exchange), Learner()
    collector.start()
    for step in range(500):
        prices, rewards = await collector.buffer.get()
        loss = learner.step(prices, rewards)
        await asyncio.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(main())
    dist.destroy_process_group()
