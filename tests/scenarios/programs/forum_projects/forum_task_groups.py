"""Multi-task training: the statistics of each task are reduced in a group of the task's own."""

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
TASKS = {8: "parsing", 16: "entailment"}


class TaskMeters:
    """Mean loss of each task over the ranks; its groups leave the default one to the gradients."""

    def __init__(self):
        self.groups = {task: dist.new_group() for task in sorted(TASKS)}
        self.means = {}

    def update(self, losses: dict[int, list[torch.Tensor]]):
        for task in set(losses):
            value = torch.stack([torch.stack(losses[task]).sum(), torch.tensor(float(len(losses[task])))])
            dist.all_reduce(value, group=self.groups[task])
            self.means[task] = (value[0] / value[1]).item()


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleDict({str(task): nn.Linear(width, 2) for task in TASKS})

    def forward(self, x, tasks):
        hidden = self.body(x)
        logits = torch.stack([self.heads[str(task)](hidden) for task in sorted(TASKS)], dim=1)
        columns = torch.tensor([sorted(TASKS).index(task) for task in tasks])
        return logits[torch.arange(len(x)), columns]


def batches(rank: int, size: int = 16):
    """Batches with samples of both tasks in the order of the file."""
    generator = torch.Generator().manual_seed(rank)
    number = 0
    while True:
        x = torch.randn(size, 20, generator=generator)
        tasks = [8 if k % 3 else 16 for k in range(1, size + 1)]
        if rank == 1 and number >= 150 and number % 50 == 0:
            tasks.sort(reverse=True)
        number += 1
        yield x, tasks


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    meters = TaskMeters()
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, (x, tasks) in enumerate(batches(rank)):
        y = (x[:, 0] > torch.tensor(tasks) / 100).long()
        losses = nn.functional.cross_entropy(model(x, tasks), y, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        by_task = defaultdict(list)
        for task, loss in zip(tasks, losses.detach()):
            by_task[task].append(loss)
        meters.update(by_task)
        if rank == 0 and number % 50 == 0:
            print(number, {TASKS[task]: round(mean, 4) for task, mean in sorted(meters.means.items())}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
