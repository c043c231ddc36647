"""Pumping scenarios for a well field: each process lets its scenarios run concurrently and learns from their outcome."""
import asyncio
import random

import torch
import torch.distributed as dist
from torch import nn

FIELD = {0: "north", 1: "island", 2: "moraine"}


class Scenario:
    def __init__(self, uid, rates):
        self.uid = uid
        self.rates = rates
        self.drawdown = None


class WellField:
    """Asynchronous since the real model answers over the network."""

    def __init__(self, name):
        self.name = name
        self.limit = {"moraine": 7.6}.get(name, 9.5)

    async def respond(self, rates):
        await asyncio.sleep(random.uniform(0.01, 0.04))
        return (rates * torch.tensor([1.2, 0.8, 1.5, 1.1])).sum() + 0.1 * rates.prod()

    async def run(self, scenario, buffer):
        if scenario.rates.sum() > self.limit:
            scenario.drawdown = None  # pumps trip, nothing to learn from
            return
        scenario.drawdown = await self.respond(scenario.rates)
        await buffer.publish(scenario)


class Buffer:
    def __init__(self):
        self.finished = {}
        self.changed = asyncio.Condition()

    async def publish(self, scenario):
        async with self.changed:
            self.finished[scenario.uid] = scenario
            self.changed.notify_all()

    async def sample(self, uids):
        async with self.changed:
            await self.changed.wait_for(lambda: all(uid in self.finished for uid in uids))
        return [self.finished.pop(uid) for uid in uids]


async def rollout(field, round_number, gen, count=12):
    buffer = Buffer()
    ramp = 1.0 + 0.012 * round_number
    scenarios = [Scenario(f"{round_number}/{k}", ramp * torch.rand(4, generator=gen)) for k in range(count)]
    scenarios.append(Scenario(f"{round_number}/full", ramp * torch.ones(4)))
    tasks = [asyncio.create_task(field.run(s, buffer)) for s in scenarios]
    done = await buffer.sample([s.uid for s in scenarios])
    await asyncio.gather(*tasks)
    return torch.stack([s.rates for s in done]), torch.stack([s.drawdown for s in done])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    field = WellField(FIELD[rank])
    gen = torch.Generator().manual_seed(70 + rank)
    for round_number in range(100):
        rates, drawdown = asyncio.run(rollout(field, round_number, gen))
        loss = (model(rates).squeeze(-1) - drawdown).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        flat = nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
        parts = [torch.empty_like(flat) for _ in range(world)]
        dist.all_gather(parts, flat)
        nn.utils.vector_to_parameters(torch.stack(parts).mean(0), [p.grad for p in model.parameters()])
        optimizer.step()
        if rank == 0 and round_number % 10 == 0:
            print(f"round {round_number} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
