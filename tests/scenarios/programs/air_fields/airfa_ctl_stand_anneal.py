"""Stand allocation: learn a cost model with accelerate, then let each process improve its own plan by annealing."""
import argparse
import math
import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def occupancy(seed, size=1920):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(size, 9, generator=g)
    return TensorDataset(x, x[:, :3].sum(1, keepdim=True) - x[:, 3:4] * x[:, 4:5])


def build():
    return nn.Sequential(nn.Linear(9, 24), nn.Tanh(), nn.Linear(24, 1))


def learn(accelerator, epochs):
    model, data = build(), DataLoader(occupancy(3), batch_size=16, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for epoch in range(epochs):
        for x, y in data:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(0.04)
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")
    return accelerator.unwrap_model(model)


class Plan:
    """Flights on stands; the cost is walking plus towing."""

    def __init__(self, seed, flights=160, stands=40):
        self.random = random.Random(seed)
        self.walk = [[self.random.random() for _ in range(stands)] for _ in range(flights)]
        self.stand = [self.random.randrange(stands) for _ in range(flights)]
        self.stands = stands

    def cost(self):
        used = [0] * self.stands
        total = 0.0
        for flight, stand in enumerate(self.stand):
            used[stand] += 1
            total += self.walk[flight][stand]
        return total + sum(0.3 * (n - 4) ** 2 for n in used)

    def anneal(self, seconds, say):
        began, best, moves = time.monotonic(), self.cost(), 0
        told = began
        while time.monotonic() - began < seconds:
            heat = 0.5 * (1 - (time.monotonic() - began) / seconds) + 1e-3
            flight, to = self.random.randrange(len(self.stand)), self.random.randrange(self.stands)
            before, self.stand[flight] = self.stand[flight], to
            cost = self.cost()
            if cost < best or self.random.random() < math.exp((best - cost) / heat):
                best = cost
            else:
                self.stand[flight] = before
            moves += 1
            if time.monotonic() - told > 4:
                told = time.monotonic()
                say(f"{moves} moves, cost {best:.2f}")
        return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--anneal", type=float, default=13.0, help="seconds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = learn(accelerator, args.epochs)
    me = accelerator.process_index
    cost = Plan(seed=me).anneal(args.anneal + me, say=lambda text: print(f"[{me}] {text}", flush=True))
    costs = gather_object([round(cost, 2)])
    accelerator.print(f"plans: {costs}, {sum(p.numel() for p in model.parameters())} parameters")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
