# Rendering of stage looks in three stages (lantern -> haze -> camera), one rank each, with gradients back to the lantern's settings.
import math
import os
from typing import List

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 64
PER_CHUNK = 8


def looks_of(show: int) -> int:
    """Number of looks in a show; the repertoire is fixed for the season."""
    return {37: 44, 52: 36}.get(show, 24 + 8 * (show % 4))


class Cable:
    """Point-to-point link to the stages before and after this one."""

    def __init__(self, rank, world):
        self.before = rank - 1 if rank > 0 else None
        self.after = rank + 1 if rank + 1 < world else None

    def receive(self, peer):
        buffer = torch.empty(PER_CHUNK, WIDTH, device="cuda")
        dist.recv(buffer, src=peer)
        torch.cuda.current_stream().synchronize()
        return buffer

    def send(self, tensor, peer):
        dist.send(tensor.contiguous(), dst=peer)


class Stage:
    def __init__(self, cable: Cable):
        self.cable = cable
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def chunks(self, show):
        return math.ceil(looks_of(show) / PER_CHUNK)

    def inputs(self, show):
        for _ in range(self.chunks(show)):
            yield self.cable.receive(self.cable.before).requires_grad_()

    def play(self, show):
        held = []
        for x in self.inputs(show):
            y = self.net(x)
            held.append((x, y))
            if self.cable.after is not None:
                self.cable.send(y.detach(), self.cable.after)
        for x, y in reversed(held):
            if self.cable.after is not None:
                y.backward(self.cable.receive(self.cable.after))
            else:
                y.square().mean().backward()
            if self.cable.before is not None:
                self.cable.send(x.grad, self.cable.before)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return len(held)


class Lantern(Stage):
    """First stage: turns the console's settings into beams."""

    def beams(self, show) -> List[torch.Tensor]:
        source = torch.Generator().manual_seed(show)
        angle = torch.linspace(-1, 1, 179_200)
        found = []
        for look in range(looks_of(show)):
            zoom, edge, tilt = torch.rand(3, generator=source).tolist()
            profile = torch.sigmoid((0.2 + zoom - (angle - tilt).abs()) * (5 + 40 * edge))
            found.append(profile.view(64, 2800).mean(1))
        return found

    def inputs(self, show):
        beams = self.beams(show)
        for first in range(0, len(beams) - PER_CHUNK + 1, PER_CHUNK):
            yield torch.stack(beams[first : first + PER_CHUNK]).cuda()


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = (Lantern if rank == 0 else Stage)(Cable(rank, world))
    for show in range(80):
        chunks = stage.play(show)
        if show % 10 == 0:
            print(f"stage {rank}: show {show}, {chunks} chunks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
