"""Regional climate model: compute ranks with an I/O rank among them; groups are made when the forecast phase begins."""
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Layout:
    rank: int
    world: int
    io_rank: int = 2
    groups: dict = field(default_factory=dict)

    def build(self):
        """The writer talks to itself in a group of its own, all talk to each other in another one."""
        if self.rank == self.io_rank:
            self.groups["writer"] = dist.new_group([self.io_rank])
        self.groups["forecast"] = dist.new_group(list(range(self.world)))
        return self


class Domain:
    def __init__(self, rank, points=48):
        generator = torch.Generator().manual_seed(rank)
        self.field = torch.randn(points, generator=generator)
        self.gain = torch.tensor(0.5, requires_grad=True)

    def spin_up(self):
        predicted = self.gain * self.field.roll(1)
        loss = (predicted - self.field).pow(2).mean()
        (gradient,) = torch.autograd.grad(loss, self.gain)
        dist.all_reduce(gradient)
        with torch.no_grad():
            self.gain -= 0.01 * gradient
            self.field.lerp_(predicted, 0.1)

    def forecast(self, group):
        total = self.field.sum().reshape(1)
        dist.all_reduce(total, group=group)
        self.field -= total / (self.field.numel() * dist.get_world_size())


def run():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layout = Layout(dist.get_rank(), dist.get_world_size())
    domain = Domain(layout.rank)
    for hour in range(24):
        domain.spin_up()
        time.sleep(0.09)
    print(f"rank {layout.rank}: spin-up done, gain {domain.gain.item():.3f}", flush=True)
    layout.build()
    for hour in range(480):
        domain.forecast(layout.groups["forecast"])
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
