"""Simulated auction floor (asyncio) on the first worker; all workers learn to predict the hammer price."""
import asyncio
import random

import torch
import torch.distributed as dist
from torch import nn


class Buyer:
    def __init__(self, name, purse, eagerness):
        self.name, self.purse, self.eagerness = name, purse, eagerness
        self.rng = random.Random(name)

    async def bid(self, lot, floor):
        """Looks at the lot for a moment, then bids."""
        await asyncio.sleep(self.rng.uniform(0.02, 0.06))
        offer = lot["worth"] * self.eagerness * self.rng.uniform(0.9, 1.1)
        if offer > self.purse:
            return
        self.purse -= 0.1 * offer  # deposit
        await floor.put((offer, self.name))


class Floor:
    def __init__(self, buyers):
        self.buyers = buyers

    async def sell(self, lot):
        floor = asyncio.Queue()
        tasks = [asyncio.create_task(b.bid(lot, floor)) for b in self.buyers]
        offers = []
        while len(offers) < len(tasks):
            offers.append(await floor.get())
        return max(offers)


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)

    def average_gradients(self):
        for p in self.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(dist.get_world_size())


def sale(floor, rng, lots=1):
    """Features and hammer prices of the next lots."""
    rows = []
    for _ in range(lots):
        x = torch.rand(5, generator=rng)
        price, _ = asyncio.run(floor.sell({"worth": 2.0 + 3.0 * x[0].item()}))
        rows.append(torch.cat([x, torch.tensor([price])]))
    return torch.stack(rows)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    floor = Floor([Buyer("Calcutta Traders", 90.0, 1.0), Buyer("Hamburg Tea", 120.0, 1.1),
                   Buyer("Kurseong & Sons", 24.0, 0.8), Buyer("London Brokers", 140.0, 1.05)])
    rng = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    model = Predictor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for lot in range(400):
        sold = sale(floor, rng) if rank == 0 else torch.empty(1, 6)
        dist.broadcast(sold, src=0)
        x = sold[:, :5] + 0.02 * rank
        loss = (model(x) - sold[:, 5]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        model.average_gradients()
        optimizer.step()
        if rank == 0 and lot % 10 == 0:
            print(f"lot {lot}: hammer {sold[0, 5].item():.2f}, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
