"""Weekly box-office forecast: one small regression that all territories share."""
import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

MARKETS = (
    "Domestic UK Germany France Spain Italy Japan Korea China India Brazil Mexico "
    "Australia Poland Norway Sweden Turkey Greece Iceland Chile Peru Israel Egypt Vietnam"
).split()
LAST_WEEK = {"Iceland": 22, "Peru": 58, "Egypt": 57}  # contracts; everything else plays to the end
WEEKS = 40


@dataclass
class Run:
    market: str
    opened: int
    closes: int
    scale: float

    def playing(self, week):
        return self.opened <= week < self.closes

    def weekend(self, week):
        dice = random.Random(f"{self.market}-{week}")
        rows = [[dice.random(), dice.random() * self.scale, week / WEEKS, 1.0] for _ in range(32)]
        gross = [sum(r) * self.scale + dice.gauss(0, 0.1) for r in rows]
        time.sleep(0.015)
        return torch.tensor(rows), torch.tensor(gross)


def contracts(rank, world):
    return [Run(m, 0, LAST_WEEK.get(m, 60), 0.5 + len(m) / 10) for m in MARKETS[rank::world]]


def train_week(weights, runs, week, lr=0.02):
    worst = 0.0
    for run in (r for r in runs if r.playing(week)):
        rows, gross = run.weekend(week)
        residual = rows @ weights - gross
        gradient = rows.t() @ residual / len(rows)
        dist.all_reduce(gradient)
        weights -= lr * gradient / dist.get_world_size()
        worst = max(worst, residual.abs().max().item())
    return worst


def screens_for_next_week(weights, week):
    plan = torch.zeros(8)
    if dist.get_rank() == 0:
        plan = torch.linspace(1.0, 0.3, 8) * weights.norm() / (1 + week)
    dist.broadcast(plan, src=0)
    return plan


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    runs = contracts(rank, world)
    weights = torch.zeros(4)
    for week in range(WEEKS):
        worst = train_week(weights, runs, week)
        plan = screens_for_next_week(weights, week)
        if rank == 0 and week % 5 == 0:
            print(f"week {week}: worst residual {worst:.2f}, first screen share {plan[0]:.3f}", flush=True)
    if rank == 0:
        print("weights", weights.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
