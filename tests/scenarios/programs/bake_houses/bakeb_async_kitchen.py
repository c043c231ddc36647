"""A policy that assigns orders to cooks; evenings are simulated in an event loop beside the trainer."""
import asyncio
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn

COOKS = 6


class Kitchen:
    """Runs its own loop in a thread; finished dishes come out of `passed`."""

    def __init__(self, seed, counter=64):
        self.passed = queue.Queue(maxsize=counter)
        self.rng = torch.Generator().manual_seed(seed)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="kitchen", daemon=True).start()

    async def _cook(self, order, stove):
        async with stove:
            await asyncio.sleep(0.002)
            quality = float(order.mean())
        self.passed.put((order, quality))

    async def _evening(self, orders):
        stove = asyncio.Semaphore(COOKS)
        await asyncio.gather(*(self._cook(order, stove) for order in orders))
        return len(orders)

    def evening(self, guests):
        orders = torch.rand(guests, 10, generator=self.rng)
        future = asyncio.run_coroutine_threadsafe(self._evening(orders), self.loop)
        served = future.result()
        return [self.passed.get() for _ in range(served)]


def reservations(rank, evening):
    """Tables of an evening; house 2 has a wedding on the 45th."""
    usual = 24 + (evening * 5 + rank * 3) % 17
    return usual + 70 if (rank, evening) == (2, 45) else usual


class Learner:
    def __init__(self):
        torch.manual_seed(14)
        self.policy = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, COOKS))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)

    def learn(self, dishes):
        x = torch.stack([order for order, _ in dishes])
        reward = torch.tensor([quality for _, quality in dishes])
        loss = -(self.policy(x).log_softmax(dim=1).amax(dim=1) * (reward - reward.mean())).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    kitchen, learner = Kitchen(rank), Learner()
    for evening in range(120):
        loss = learner.learn(kitchen.evening(reservations(rank, evening)))
        if evening % 10 == 0 and rank == 0:
            print(f"evening {evening}: {loss:+.5f}", flush=True)
    dist.destroy_process_group()
