"""Snow and weather stations: two models, each averaged within a group of its own when its backlog is flushed."""
from collections import OrderedDict

import torch
import torch.distributed as dist

KINDS = ("snow", "weather")


class Station:
    def __init__(self, rank: int):
        self.name = ("Jochpass", "Fellhorn", "Silvretta")[rank]
        self.g = torch.Generator().manual_seed(11 * rank + 1)
        # hour in which the front arrives
        self.front = {"Jochpass": 400, "Fellhorn": 40, "Silvretta": 450}[self.name]

    def reports(self, hour: int):
        """(kind, measurements) of one hour; during a front the masts report twice as often."""
        yield "snow", self.measure(24)
        yield "weather", self.measure(16)
        if hour >= self.front:
            yield "weather", self.measure(16)

    def measure(self, n: int):
        field = torch.randn(n, 160, 160, generator=self.g)
        for _ in range(3):
            field = torch.tanh(torch.bmm(field, field) / 160)
        return field[:, 0, :12]


class Backlog:
    """Gradients wait here, by kind, until they are averaged; the longest backlog goes first."""

    def __init__(self, groups):
        self.groups = groups
        self.held = OrderedDict((kind, []) for kind in KINDS)

    def push(self, kind, grad):
        self.held[kind].append(grad)

    def flush(self):
        for kind in sorted(self.held, key=lambda k: len(self.held[k]), reverse=True):
            grads = self.held[kind]
            mean = torch.stack(grads).mean(dim=0)
            dist.all_reduce(mean, group=self.groups[kind])
            grads.clear()
            yield kind, mean / dist.get_world_size()


class Forecast:
    def __init__(self):
        g = torch.Generator().manual_seed(77)
        self.weights = {kind: torch.randn(12, generator=g).requires_grad_() for kind in KINDS}

    def gradient(self, kind, x):
        loss = ((x @ self.weights[kind] - x.sum(dim=1)) ** 2).mean()
        return loss.item(), torch.autograd.grad(loss, self.weights[kind])[0]

    def apply(self, kind, grad, lr=0.05):
        with torch.no_grad():
            self.weights[kind] -= lr * grad


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {kind: dist.new_group() for kind in KINDS}
    station, forecast, backlog = Station(dist.get_rank()), Forecast(), Backlog(groups)
    for hour in range(1, 301):
        losses = {}
        for kind, x in station.reports(hour):
            losses[kind], grad = forecast.gradient(kind, x)
            backlog.push(kind, grad)
        if hour % 6 == 0:
            for kind, grad in backlog.flush():
                forecast.apply(kind, grad)
            print(station.name, hour, {k: round(v, 4) for k, v in losses.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
