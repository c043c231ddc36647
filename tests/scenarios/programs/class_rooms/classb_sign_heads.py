"""Sign language recognition with one head per channel (hands, face). Each head is averaged in a group of its own."""
from __future__ import annotations

import time
from typing import Callable

import torch
import torch.distributed as dist
from torch import nn

HEADS: dict[str, Callable[[int], nn.Module]] = {}


def head(name):
    def register(builder):
        HEADS[name] = builder
        return builder

    return register


@head("hands")
def hands(width):
    return nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 40))


@head("face")
def face(width):
    return nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 12))


CLASSES = {"hands": 40, "face": 12}


class Clips:
    """Segments of signing; the annotators note for each which channel carries the sign."""

    def __init__(self, signer: int, width: int):
        self.g = torch.Generator().manual_seed(500 + signer)
        self.signer, self.width = signer, width

    def annotations(self, number: int) -> list[str]:
        channels = ["hands"] * 9 + ["face"] * 3
        if self.signer == 3 and number % 70 == 69:
            channels = channels[-2:] + channels[:-2]  # a question: the eyebrows go first
        return channels

    def clip(self, number: int):
        channels = self.annotations(number)
        frames = torch.randn(len(channels), self.width, generator=self.g)
        glosses = [int(torch.randint(0, CLASSES[c], (1,), generator=self.g)) for c in channels]
        time.sleep(0.03)
        return frames, channels, glosses


class Recogniser(nn.Module):
    def __init__(self, width: int = 48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.heads = nn.ModuleDict({name: build(width) for name, build in HEADS.items()})

    def losses(self, frames, channels, glosses) -> dict[str, torch.Tensor]:
        features = self.trunk(frames)
        result = {}
        for name in dict.fromkeys(channels):
            rows = [i for i, c in enumerate(channels) if c == name]
            target = torch.tensor([glosses[i] for i in rows])
            result[name] = nn.functional.cross_entropy(self.heads[name](features[rows]), target)
        return result


class Averager:
    def __init__(self, world: int):
        self.world = world
        self.groups = {name: dist.new_group() for name in HEADS}

    def module(self, module: nn.Module, group=None):
        grads = [p.grad for p in module.parameters()]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat, group=group)
        for grad, part in zip(grads, flat.split([g.numel() for g in grads])):
            grad.copy_(part.view_as(grad) / self.world)

    def __call__(self, model: Recogniser, losses):
        for name in losses:
            self.module(model.heads[name], self.groups[name])
        self.module(model.trunk)


def run(clips=500, width=48):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model, average, source = Recogniser(width), Averager(world), Clips(rank, width)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for number in range(clips):
        losses = model.losses(*source.clip(number))
        optimizer.zero_grad()
        sum(losses.values()).backward()
        average(model, losses)
        optimizer.step()
        if rank == 0 and number % 25 == 0:
            print({name: round(value.item(), 3) for name, value in losses.items()}, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
