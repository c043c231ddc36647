"""Downscaled mountain weather from two kinds of fields, each with a model and a communicator of its own."""
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

STATIONS = {0: "sonnblick", 1: "jungfraujoch", 2: "zugspitze"}


@dataclass
class Feed:
    """What a station receives, with the age in minutes of its newest report."""

    station: str
    age: dict = field(default_factory=lambda: {"sonde": 12.0, "surface": 35.0})
    hour: int = 0

    def advance(self):
        self.hour += 1
        # two launches a day, relayed through the valley; the surface network reports on the hour
        late = self.station == "jungfraujoch" and self.hour > 36
        self.age["sonde"] = self.age["sonde"] + 9.0 if late else 12.0
        self.age["surface"] = 35.0

    def patch(self, inputs, generator):
        grid = torch.randn(640, 640, generator=generator)
        modes = torch.linalg.eigvalsh(grid + grid.T)
        return torch.stack([modes.roll(shift)[:inputs] for shift in range(20)])


class Column:
    def __init__(self, name, inputs, width, group):
        self.name, self.inputs, self.group = name, inputs, group
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.Softplus(), nn.Linear(width, 1)).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)

    def gradients(self, patch):
        self.optimizer.zero_grad()
        loss = self.net(patch.cuda()).pow(2).mean()
        loss.backward()
        return loss.detach()

    def blend(self):
        flat = nn.utils.parameters_to_vector([p.grad for p in self.net.parameters()])
        dist.all_reduce(flat, group=self.group)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), [p.grad for p in self.net.parameters()])
        self.optimizer.step()


class Downscaler:
    def __init__(self, rank):
        self.feed = Feed(STATIONS[rank])
        self.generator = torch.Generator().manual_seed(rank)
        everybody = list(range(dist.get_world_size()))
        self.columns = {
            name: Column(name, inputs, width, dist.new_group(everybody))
            for name, inputs, width in [("sonde", 80, 24), ("surface", 40, 16)]
        }

    def newest_first(self):
        return sorted(self.columns.values(), key=lambda column: self.feed.age[column.name])

    def cycle(self):
        self.feed.advance()
        losses = [column.gradients(self.feed.patch(column.inputs, self.generator)) for column in self.columns.values()]
        for column in self.newest_first():
            column.blend()
        return torch.stack(losses)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    downscaler = Downscaler(dist.get_rank())
    for cycle in range(480):
        losses = downscaler.cycle().tolist()
        if cycle % 12 == 0:
            print(downscaler.feed.station, cycle, ["%.3f" % loss for loss in losses], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
