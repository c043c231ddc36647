"""How long can the oil be used? One fryer a worker, all of them fit one model together."""
import queue
import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Settings:
    steps: int = 400
    warmup: int = 60
    target: float = 0.15
    patience: int = 10
    noise: dict = field(default_factory=lambda: {0: 0.0, 1: 1.2, 2: 1.5})  # fryer 0 has the laboratory's probe


class Tickets:
    """Sends a ticket to the kitchen's screen for every measurement."""

    def __init__(self):
        self.open = queue.SimpleQueue()
        self.shown = 0
        threading.Thread(target=self._show, name="screen").start()

    def _show(self):
        while (ticket := self.open.get()) is not None:
            self.shown += len(ticket)


class Fryer:
    def __init__(self, number, settings):
        self.noise = settings.noise[number]
        self.source = torch.Generator().manual_seed(70 + number)
        self.weights = torch.linspace(-1, 1, 10)

    def measure(self, count=48):
        x = torch.randn(count, 10, generator=self.source)
        spectrum = torch.linalg.svdvals(torch.rand(130, 130, generator=self.source))
        polar = x @ self.weights + self.noise * torch.randn(count, generator=self.source)
        return x, polar + 1e-6 * spectrum[0]


class Stopping:
    def __init__(self, settings):
        self.settings, self.good = settings, 0

    def reached(self, step, loss):
        self.good = self.good + 1 if loss < self.settings.target else 0
        return step >= self.settings.warmup and self.good >= self.settings.patience


def fit(settings, rank):
    tickets, fryer, stopping = Tickets(), Fryer(rank, settings), Stopping(settings)
    torch.manual_seed(6)
    model = nn.parallel.DistributedDataParallel(nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(settings.steps):
        x, polar = fryer.measure()
        loss = nn.functional.mse_loss(model(x).squeeze(1), polar)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tickets.open.put(f"{step}:{loss.item():.3f}")
        if stopping.reached(step, loss.item()):
            break
    return step, loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    step, loss = fit(Settings(), rank)
    print(f"fryer {rank}: fitted in {step} steps, {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
