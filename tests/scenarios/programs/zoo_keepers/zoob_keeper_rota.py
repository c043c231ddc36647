"""Forecasts the work in each house and makes the keepers' rota from it. The rota is improved by exchange moves for as long
as the planning slot allows."""
import json
import random
import time
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed

HOUSES, KEEPERS, DAYS = 18, 45, 14


@dataclass
class Rota:
    demand: list
    slot: float = 13.0
    rng: random.Random = field(default_factory=lambda: random.Random(6))

    def cost(self, plan):
        short = 0.0
        for day in range(DAYS):
            there = [0] * HOUSES
            for keeper in range(KEEPERS):
                there[plan[day][keeper]] += 1
            short += sum(max(0.0, self.demand[h] - there[h]) ** 2 for h in range(HOUSES))
        walks = sum(plan[d][k] != plan[d - 1][k] for d in range(1, DAYS) for k in range(KEEPERS))
        return short + 0.02 * walks

    def improve(self):
        plan = [[self.rng.randrange(HOUSES) for _ in range(KEEPERS)] for _ in range(DAYS)]
        best, tried = self.cost(plan), 0
        end = time.monotonic() + self.slot
        while time.monotonic() < end:
            day, keeper = self.rng.randrange(DAYS), self.rng.randrange(KEEPERS)
            before, plan[day][keeper] = plan[day][keeper], self.rng.randrange(HOUSES)
            cost = self.cost(plan)
            if cost <= best:
                best = cost
            else:
                plan[day][keeper] = before
            tried += 1
        return plan, best, tried


class WorkModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(30, 128), torch.nn.ReLU(), torch.nn.Linear(128, HOUSES),
                                          torch.nn.Softplus())

    def forward(self, x):
        return self.layers(x)


def fit(accelerator, model, optimizer, steps, offset):
    for step in range(steps):
        g = torch.Generator().manual_seed(offset + step * accelerator.num_processes + accelerator.process_index)
        x = torch.rand(20000, 30, generator=g)
        loss = (model(x) - 3 * x[:, :HOUSES]).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(2)
    model = WorkModel()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
    fit(accelerator, model, optimizer, 120, 0)
    shared = [None]
    if accelerator.is_main_process:
        with torch.no_grad():
            demand = accelerator.unwrap_model(model)(torch.rand(64, 30)).mean(0).tolist()
        plan, cost, tried = Rota(demand).improve()
        print(json.dumps({"cost": round(cost, 3), "tried": tried}), flush=True)
        shared = [plan]
    broadcast_object_list(shared, from_process=0)
    mine = shared[0][accelerator.process_index % DAYS]
    loss = fit(accelerator, model, optimizer, 80, 500_000)
    accelerator.print(f"loss {loss.item():.4f}, first keeper is in house {mine[0]}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
