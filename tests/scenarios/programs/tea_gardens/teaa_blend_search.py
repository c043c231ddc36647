"""House blend: all workers learn the panel's taste, then the first one looks for a recipe within a time budget."""
import argparse
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

TEAS = ["Assam BOP", "Dimbula", "Nuwara Eliya", "Kericho", "Nilgiri", "Keemun"]
PRICES = [3.1, 3.4, 5.2, 2.8, 2.9, 6.0]


class Panel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.f = torch.nn.Sequential(torch.nn.Linear(len(TEAS), 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))

    def forward(self, shares):
        return self.f(shares).squeeze(-1)


def learn(model, optimizer, rng, steps):
    for _ in range(steps):
        shares = torch.softmax(torch.randn(32, len(TEAS), generator=rng), 1)
        liked = (shares * torch.arange(6)).sum(1) / 6 - shares.pow(2).sum(1)
        loss = (model(shares) - liked).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def neighbours(recipe, rng):
    """One percent moved from one tea to another."""
    while True:
        a, b = rng.sample(range(len(recipe)), 2)
        if recipe[a] >= 1:
            moved = list(recipe)
            moved[a] -= 1
            moved[b] += 1
            yield moved


def search(weights, budget_s):
    """Annealing in plain Python over whole percents; the budget ends it."""
    rng = random.Random(0)
    layers = [w.tolist() for w in weights]

    def value(recipe):
        x = [r / 100 for r in recipe]
        h = [sum(w * v for w, v in zip(row, x)) + b for row, b in zip(layers[0], layers[1])]
        h = [v / (1 + abs(v)) for v in h]
        taste = sum(w * v for w, v in zip(layers[2][0], h))
        return taste - 0.02 * sum(p * v for p, v in zip(PRICES, x))

    current = [20, 20, 15, 15, 15, 15]
    best, tried, heat, end = (value(current), current), 0, 0.05, time.monotonic() + budget_s
    for candidate in iter(lambda: next(neighbours(current, rng)), None):
        tried += 1
        v = value(candidate)
        if v > best[0] or rng.random() < heat:
            current = candidate
            best = max(best, (v, candidate))
        heat *= 0.99995
        if time.monotonic() > end:
            break
    print(f"{tried} recipes, best {dict(zip(TEAS, best[1]))}", flush=True)
    return best[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=float, default=15.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Panel())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rng = torch.Generator().manual_seed(rank)
    learn(model, optimizer, rng, 50)
    recipe = torch.zeros(len(TEAS))
    if rank == 0:
        recipe = torch.tensor(search([p.detach() for p in model.module.parameters()], args.budget), dtype=torch.float32)
    dist.broadcast(recipe, src=0)
    loss = learn(model, optimizer, rng, 40)
    print(f"[{rank}] recipe {recipe.tolist()}, loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
