"""Fits the blade control of the grooming robots, one strip of slope per process."""
import argparse

import torch
import torch.distributed as dist

STRIPS = ["Standard", "Carving", "Familien", "Rennstrecke"]


class Strip:
    def __init__(self, index: int, truth: torch.Tensor):
        self.name = STRIPS[index]
        self.truth = truth
        self.g = torch.Generator().manual_seed(300 + index)
        # degrees an hour by which the evening run is warmer than the morning run
        self.melt = {"Familien": 1.5}.get(self.name, 0.0)

    def passes(self, n: int):
        x = torch.randn(n, self.truth.numel(), generator=self.g)
        relief = torch.randn(400, 400, generator=self.g)
        for _ in range(6):
            relief = torch.tanh(relief @ relief.T / 400)
        return x, x @ self.truth + 1e-3 * relief[0, 0]

    def evening(self, hour: int):
        x, y = self.passes(256)
        return x, y + self.melt * hour


class Controller:
    def __init__(self, width: int, lr: float):
        self.weight = torch.zeros(width, requires_grad=True)
        self.lr = lr

    def update(self, x, y) -> float:
        loss = ((x @ self.weight - y) ** 2).mean()
        (grad,) = torch.autograd.grad(loss, [self.weight])
        dist.all_reduce(grad)
        with torch.no_grad():
            self.weight -= self.lr * grad / dist.get_world_size()
        return loss.item()

    @torch.no_grad()
    def error(self, x, y) -> float:
        return float(((x @ self.weight - y) ** 2).mean())


class Patience:
    def __init__(self, hours: int):
        self.hours, self.best, self.bad = hours, float("inf"), 0

    def exhausted(self, value: float) -> bool:
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.hours


def fit(controller, strip, patience, hours, passes):
    history = []
    for hour in range(hours):
        for _ in range(passes):
            controller.update(*strip.passes(128))
        history.append(controller.error(*strip.evening(hour)))
        print(f"{strip.name:12s} hour {hour:3d} error {history[-1]:.4f}", flush=True)
        if patience.exhausted(history[-1]):
            break
    return history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=60)
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--patience", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    truth = torch.linspace(-0.8, 0.8, 16)
    strip = Strip(dist.get_rank(), truth)
    controller = Controller(16, lr=0.005)
    history = fit(controller, strip, Patience(options.patience), options.hours, options.passes)
    best = torch.tensor([min(history), float(len(history))])
    table = [torch.zeros(2) for _ in STRIPS]
    dist.all_gather(table, best)
    if dist.get_rank() == 0:
        print({name: row.tolist() for name, row in zip(STRIPS, table)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
