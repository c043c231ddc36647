"""Training whose console reporter gets a group of its own when the first report is due."""
import functools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Reporter:
    """Means over the ranks, on a group apart from that of the gradients."""

    def __init__(self, every):
        self.every = every
        self.history = []

    @functools.cached_property
    def group(self):
        return dist.new_group(list(range(dist.get_world_size())), backend="gloo")

    def mean(self, value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, group=self.group)
        return tensor.item() / dist.get_world_size()

    def step(self, number, **values):
        self.history.append(values)
        if number % self.every or dist.get_rank() != 0:
            return
        recent = self.history[-self.every :]
        means = {name: self.mean(sum(v[name] for v in recent) / len(recent)) for name in values}
        print(f"step {number}", {name: round(value, 4) for name, value in means.items()}, flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    net = nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4))
    model = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=1000)
    reporter = Reporter(every=40)
    for number in range(1, 1000):
        x = torch.randn(16, 4, 32)
        loss = nn.functional.cross_entropy(model(x), x.sum(2).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        time.sleep(0.06)
        reporter.step(number, loss=loss.item(), norm=norm.item(), lr=schedule.get_last_lr()[0])


if __name__ == "__main__":
    main()
