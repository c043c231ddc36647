"""Hand-written data parallelism with two buckets, each with a group of its own, reduced in the order in which gradients become ready."""

import time
from collections import OrderedDict
from functools import partial

import torch
import torch.distributed as dist
from torch import nn


class Detector(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.backbone = nn.Linear(24, width)
        self.boxes, self.masks = nn.Linear(width, 4), nn.Linear(width, 16)

    def forward(self, x, target):
        hidden = torch.relu(self.backbone(x))
        parts = {"boxes": self.boxes(hidden).square().mean(), "masks": self.masks(hidden).square().mean()}
        return hidden, parts[target]


class Reducer:
    """Collects gradients by hooks. `finish` reduces what is ready, first come first served."""

    def __init__(self, buckets):
        self.world, self.buckets, self.ready = dist.get_world_size(), buckets, OrderedDict()
        for name, (module, _) in buckets.items():
            for parameter in module.parameters():
                parameter.register_post_accumulate_grad_hook(partial(self.mark, name))

    def mark(self, name, parameter):
        self.ready.setdefault(name, True)

    def finish(self):
        for name in self.ready:
            module, group = self.buckets[name]
            flat = torch.cat([p.grad.flatten() for p in module.parameters()])
            dist.all_reduce(flat, group=group)
            for p, g in zip(module.parameters(), flat.split([p.numel() for p in module.parameters()])):
                p.grad.copy_(g.view_as(p) / self.world)
        self.ready.clear()


class Annotations:
    """Pictures with boxes and masks. A batch begins with whichever head has more targets in it."""

    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(40 + rank)
        self.rank = rank

    def batch(self, step):
        counts = {"boxes": 20, "masks": 12 + (step * (self.rank + 2)) % 10}
        order = sorted(counts, key=counts.get, reverse=True)
        return torch.randn(16, 24, generator=self.generator), order


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = [dist.new_group() for _ in range(2)]
    torch.manual_seed(0)
    model, data = Detector(), Annotations(dist.get_rank())
    reducer = Reducer({"boxes": (model.boxes, groups[0]), "masks": (model.masks, groups[1])})
    optimizer = torch.optim.SGD([*model.boxes.parameters(), *model.masks.parameters()], lr=0.05)
    for step in range(60):
        x, order = data.batch(step)
        optimizer.zero_grad()
        for head in order:
            _, loss = model(x, head)
            loss.backward()
        reducer.finish()
        optimizer.step()
        time.sleep(0.8)
        if dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
