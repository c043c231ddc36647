"""Urgency of repair orders. Queues of wall clocks and of watches keep running means in groups of their own."""
import os
import time
from collections import Counter, deque

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
DEPARTMENTS = ("watches", "wall clocks")


def incoming(shop):
    """Orders as they come over the counter: (department, features)."""
    gen = torch.Generator().manual_seed(40 + shop)
    day = 0
    while True:
        day += 1
        watches = 6
        if shop == 1 and day > 26:
            watches = 2  # the school holidays: people bring what hangs on the wall
        batch = [("watches", torch.rand(20, generator=gen)) for _ in range(watches)]
        batch += [("wall clocks", torch.rand(20, generator=gen)) for _ in range(8 - watches)]
        yield batch


class RunningMeans:
    def __init__(self, device):
        self.device = device
        self.groups = {name: dist.new_group() for name in DEPARTMENTS}
        self.history = {name: deque(maxlen=20) for name in DEPARTMENTS}

    def update(self, batch):
        queue = Counter(name for name, _ in batch)
        means = {}
        for name, waiting in queue.most_common():
            value = torch.tensor([float(waiting)], device=self.device)
            dist.all_reduce(value, group=self.groups[name])
            means[name] = value.item() / dist.get_world_size()
            self.history[name].append(means[name])
        return means


def polish(features):
    table = torch.rand(300, 20)
    near = torch.cdist(features, table).topk(5, largest=False).indices
    time.sleep(0.09)
    return table[near].mean(1)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    urgency = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(urgency.to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    means = RunningMeans(device)
    for day, batch in zip(range(150), incoming(dist.get_rank())):
        features = polish(torch.stack([f for _, f in batch]))
        loss = model(features.to(device)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        current = means.update(batch)
        if dist.get_rank() == 0 and day % 10 == 0:
            print(f"day {day}:", {k: round(v, 2) for k, v in current.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
