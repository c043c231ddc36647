"""Travel speeds from GPS traces, one district per worker (FSDP2 on CPU)."""
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

POINT_BUDGET = 400
FEATURES = 6


@dataclass
class District:
    name: str
    peaks: set = field(default_factory=set)
    trips_per_hour: int = 8

    def traces(self, hour):
        """The trips that ended in this hour; at peak they take longer."""
        points = 115 if hour in self.peaks else 90
        g = torch.Generator().manual_seed(1000 * len(self.name) + hour)
        return [torch.rand(points, FEATURES, generator=g) for _ in range(self.trips_per_hour)]


DISTRICTS = [
    District("harbour", {31, 32, 33, 55, 56}),
    District("campus", {36, 37, 60}),
    District("old town", {31, 32, 57}),
]


def pack(traces, budget):
    """Greedy packing into micro-batches of at most `budget` points."""
    packed, current, used = [], [], 0
    for trace in traces:
        if used + len(trace) > budget and current:
            packed.append(torch.cat(current))
            current, used = [], 0
        current.append(trace)
        used += len(trace)
    packed.append(torch.cat(current))
    return packed


class SpeedNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, 1)

    def forward(self, points):
        return self.head(torch.relu(self.encode(points))).squeeze(-1)


def train_hour(model, optimizer, micros):
    seen = torch.zeros(1)
    for micro in micros:
        time.sleep(0.04)  # map matching
        target = micro[:, 0] * 50 + micro[:, 1]
        loss = (model(micro) - target).abs().mean() / len(micros)
        loss.backward()
        seen += len(micro)
    dist.all_reduce(seen)
    optimizer.step()
    optimizer.zero_grad()
    return int(seen)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = SpeedNet()
    fully_shard(model.encode, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    district = DISTRICTS[rank % len(DISTRICTS)]
    for hour in range(72):
        points = train_hour(model, optimizer, pack(district.traces(hour), POINT_BUDGET))
        if rank == 0 and hour % 6 == 0:
            print(f"hour {hour}: {points} points", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
