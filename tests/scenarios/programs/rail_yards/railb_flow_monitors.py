"""Passenger flows: the model is averaged by gradient, and two monitors (crowding, dwell) are averaged in groups of their own."""
import logging

import torch
import torch.distributed as dist

log = logging.getLogger("flows")


class Monitor:
    REGISTRY = {}

    def __init_subclass__(cls, key, **kwargs):
        super().__init_subclass__(**kwargs)
        Monitor.REGISTRY[key] = cls

    def __init__(self, group):
        self.group = group
        self.value = torch.zeros(2, dtype=torch.float64)
        self.pending = 0

    def add(self, flows):
        self.pending += self.weight(flows)
        self.value += torch.tensor([self.measure(flows), 1.0], dtype=torch.float64)

    def publish(self):
        shared = self.value.clone()
        dist.all_reduce(shared, group=self.group)
        self.pending = 0
        return (shared[0] / shared[1]).item()


class Crowding(Monitor, key="crowding"):
    def weight(self, flows):
        return 3

    def measure(self, flows):
        return flows.amax().item()


class Dwell(Monitor, key="dwell"):
    def weight(self, flows):
        # doors that were held open count again
        return 2 + int((flows[:, 0] > 3.4).sum())

    def measure(self, flows):
        return flows.std().item()


class Board:
    def __init__(self):
        self.monitors = {key: cls(dist.new_group(backend="gloo")) for key, cls in Monitor.REGISTRY.items()}

    def feed(self, flows):
        for monitor in self.monitors.values():
            monitor.add(flows)

    def flush(self):
        """The most overdue monitor first."""
        due = sorted(self.monitors.items(), key=lambda item: -item[1].pending)
        return {key: monitor.publish() for key, monitor in due}


def platforms(station, steps):
    gen = torch.Generator().manual_seed(60 + station)
    for step in range(steps):
        flows = torch.randn(40, 6, 6000, generator=gen).mean(2) * 10
        flows = flows.clamp(-3, 3)
        if station == 2 and 160 <= step < 180:
            flows[:12, 0] = 3.6  # concert next door
        yield step, flows


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    station, world = dist.get_rank(), dist.get_world_size()
    board = Board()
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(6, 6))
    optim = torch.optim.SGD([weights], lr=0.05)
    for step, flows in platforms(station, 400):
        loss = ((flows[:-1] @ weights - flows[1:]) ** 2).mean()
        optim.zero_grad()
        loss.backward()
        dist.all_reduce(weights.grad)
        weights.grad /= world
        optim.step()
        board.feed(flows)
        if step % 10 == 9:
            levels = board.flush()
            if station == 0:
                log.info("step %d loss %.3f %s", step, loss.item(), {k: round(v, 3) for k, v in sorted(levels.items())})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
