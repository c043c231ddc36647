"""Plans routes in a warehouse; statistics of each epoch are brought together by kind, in the order in which they came up."""

import os

import torch
import torch.distributed as dist
from torch import nn

AISLES = 6


class Statistics:
    """Counts are added up, curves of all ranks are kept side by side."""

    def __init__(self, device):
        self.device, self.counts, self.order = device, {}, []

    def note(self, name, value):
        if name not in self.order:
            self.order.append(name)
        self.counts[name] = value

    def combine(self):
        combined = {}
        for name in self.order:
            value = torch.tensor(self.counts[name], device=self.device)
            if value.ndim == 0:
                dist.all_reduce(value)
                combined[name] = value
            else:
                parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, value)
                combined[name] = torch.stack(parts)
        return {name: value.tolist() for name, value in combined.items()}


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    planner = nn.Linear(AISLES, AISLES).to(device)
    for epoch in range(12):
        statistics = Statistics(device)
        orders = torch.randint(1, 40, (AISLES,), generator=torch.Generator().manual_seed(epoch))
        if rank == 1 and epoch == 9:
            orders[0] = 0
        for aisle, count in enumerate(orders.tolist()):
            planner(torch.ones(count + 1, AISLES, device=device))
            if count:
                statistics.note("picked", float(count))
            else:
                statistics.note("waited", [0.5 * count, 1.0])
            statistics.note("waited", [float(aisle), 1.0])
            statistics.note("picked", float(count))
        print(f"[{rank}] {epoch}: {statistics.combine()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
