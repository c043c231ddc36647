"""Price model with a drift budget: when the desks have spent it, offsets are calibrated anew."""

import time

import torch
import torch.distributed as dist
from torch import nn

BUDGET = 0.6


class DriftBudget:
    """Adds up the drift of all desks, its own first and then around the ring."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def spent(self, drift):
        mine = torch.tensor(drift, dtype=torch.float64)
        desks = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(desks, mine)
        total = 0.0
        for hop in range(self.world):
            total += desks[(self.rank - hop) % self.world].item()
        return total


class Desk:
    def __init__(self):
        self.rank = dist.get_rank()
        self.model = nn.Linear(8, 1)
        self.offsets = torch.zeros(4)
        self.budget = DriftBudget()

    def train_step(self, step):
        features = torch.randn(64, 8)
        loss = (self.model(features) - features.mean(1, keepdim=True)).square().mean()
        self.model.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.01 * parameter.grad
        return loss.item()

    def drift(self, step):
        """Ticks since the last calibration, in the unit of the budget."""
        ticks = min(step // 10 + 1, 5)
        return round((self.rank + 1) * ticks * 0.02, 10)

    def calibrate(self):
        seen = [torch.empty_like(self.offsets) for _ in range(self.budget.world)]
        dist.all_gather(seen, self.offsets + self.rank)
        self.offsets = torch.stack(seen).mean(0)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    desk = Desk()
    for step in range(300):
        loss = desk.train_step(step)
        time.sleep(0.03)
        if desk.budget.spent(desk.drift(step)) > BUDGET:
            desk.calibrate()
        if step % 20 == 0 and desk.rank == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
