"""Layer-wise trained MoE encoder over a hand-made pipeline. A tracker collects auxiliary losses by name."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Tracker:
    values: dict = field(default_factory=dict)

    def save(self, name, layer, value, layers):
        self.values.setdefault(name, torch.zeros(layers))[layer] += value.detach()

    def reduce(self):
        for name, value in self.values.items():
            dist.all_reduce(value)
        out = {name: value.mean().item() for name, value in self.values.items()}
        self.values.clear()
        return out


class Dense(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x, tracker, index, layers):
        return x + self.net(x)


class Experts(nn.Module):
    def __init__(self, width, n=4):
        super().__init__()
        self.router, self.experts = nn.Linear(width, n), nn.ModuleList(nn.Linear(width, width) for _ in range(n))

    def forward(self, x, tracker, index, layers):
        probabilities = self.router(x).softmax(-1)
        tracker.save("load_balancing_loss", index, probabilities.mean(0).square().sum(), layers)
        return x + sum(p.unsqueeze(-1) * e(x) for p, e in zip(probabilities.unbind(-1), self.experts))


PATTERN = "dd" + "mm" + "mm"


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = range(rank * 2, rank * 2 + 2)
    stage = nn.ModuleList({"d": Dense, "m": Experts}[PATTERN[i]](32) for i in mine)
    optimizer, tracker = torch.optim.SGD(stage.parameters(), lr=0.01), Tracker()
    for step in range(40):
        x = torch.randn(64, 32)
        if rank > 0:
            dist.recv(x, src=rank - 1)
        y = x
        for index, layer in zip(mine, stage):
            y = layer(y, tracker, index, len(PATTERN))
        if rank + 1 < world:
            dist.send(y.detach().contiguous(), dst=rank + 1)
        loss = (y - x.roll(1, 0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.15)
        if step % 10 == 9:
            aux = tracker.reduce()
            losses = [torch.zeros(1) for _ in range(world)]
            dist.all_gather(losses, loss.detach().reshape(1))
            if rank == world - 1:
                print(step, torch.cat(losses).tolist(), aux, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
