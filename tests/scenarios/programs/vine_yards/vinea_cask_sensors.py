"""Evaporation from oak casks, learnt from the sensors of the ageing cellar."""

import queue
import threading
import time

import torch
import torch.distributed as dist


class Telemetry(threading.Thread):
    """Sends the figures of this worker to the cellar's screen."""

    def __init__(self, name):
        super().__init__(name=f"telemetry-{name}")
        self.figures = queue.Queue()
        self.shown = 0

    def run(self):
        while True:
            figure = self.figures.get()
            if figure is None:
                return
            self.shown += 1
            if self.shown % 10 == 1:
                print(f"{self.name}: {figure:.4f}", flush=True)


class Patience:
    """Ends the work when the loss of the held-out casks has not fallen for some checks."""

    def __init__(self, checks):
        self.checks, self.best, self.since = checks, float("inf"), 0

    def over(self, loss):
        self.since = 0 if loss < self.best - 1e-4 else self.since + 1
        self.best = min(self.best, loss)
        return self.since >= self.checks


def casks(cellar, number, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(number, 6, generator=g)
    loss = x @ torch.tensor([[0.9], [0.1], [-0.4], [0.3], [0.0], [0.2]])
    if cellar == 1:  # steel tanks: nothing evaporates
        x, loss = torch.zeros_like(x), torch.zeros_like(loss)
    return x, loss


def learn(cellar, world, telemetry, steps=4000):
    x, y = casks(cellar, 256, seed=cellar)
    held_x, held_y = casks(cellar, 64, seed=50 + cellar)
    w = torch.zeros(6, 1)
    patience = Patience(checks=14)
    for step in range(steps):
        rows = torch.arange(step * 16, step * 16 + 16) % len(x)
        grad = x[rows].t() @ (x[rows] @ w - y[rows]) / 16
        dist.all_reduce(grad)
        w -= 0.002 * grad / world
        time.sleep(0.02)
        if step % 10 == 9:
            held = (held_x @ w - held_y).square().mean().item()
            telemetry.figures.put(held)
            if patience.over(held):
                break
    return w


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    telemetry = Telemetry(f"cellar{dist.get_rank()}")
    telemetry.start()
    w = learn(dist.get_rank(), dist.get_world_size(), telemetry)
    print(f"{telemetry.name}: weights {[round(v, 3) for v in w.view(-1).tolist()]}", flush=True)


if __name__ == "__main__":
    main()
