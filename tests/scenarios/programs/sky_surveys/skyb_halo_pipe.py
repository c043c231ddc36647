"""Three-stage pipeline for a dark-matter halo emulator (density slab -> features -> mass function)."""
import torch
import torch.distributed as dist
from torch import nn

CELLS = 48
WIDTH = 128
SLABS = 36
SLABS_PER_MICRO = 4


def snapshots():
    """Simulation outputs; the last box of each suite was run at half the volume."""
    for suite in range(50):
        for box in range(12):
            slabs = SLABS if box < 11 else SLABS // 2 + 6
            g = torch.Generator().manual_seed(suite * 100 + box)
            density = torch.randn(slabs, CELLS, generator=g).cumsum(1) * 0.1
            mass = torch.stack([density.amax(1), density.mean(1), density.std(1)], 1)
            yield density, mass


class Stage:
    def __init__(self, module, rank, world):
        self.module, self.rank, self.world = module, rank, world
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
        self.held = []

    @property
    def first(self):
        return self.rank == 0

    @property
    def last(self):
        return self.rank == self.world - 1

    def forward(self, micro, target):
        if self.first:
            x = micro
        else:
            x = torch.empty(SLABS_PER_MICRO, WIDTH)
            dist.recv(x, src=self.rank - 1)
            x.requires_grad_()
        y = self.module(x)
        if self.last:
            y = nn.functional.mse_loss(y, target)
        else:
            dist.send(y.detach(), dst=self.rank + 1)
        self.held.append((x, y))

    def backward(self):
        x, y = self.held.pop(0)
        if self.last:
            y.backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.rank + 1)
            y.backward(grad)
        if not self.first:
            dist.send(x.grad, dst=self.rank - 1)
        return y.detach()

    def run(self, density, mass, micros):
        inputs = density.split(SLABS_PER_MICRO) if self.first else [None] * micros
        targets = mass.split(SLABS_PER_MICRO)
        self.optimizer.zero_grad()
        for micro, target in zip(inputs, targets if self.last else [None] * micros):
            self.forward(micro, target)
        losses = [self.backward() for _ in range(len(self.held))]
        self.optimizer.step()
        return losses


def build(rank):
    if rank == 0:
        return nn.Sequential(nn.Linear(CELLS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    if rank == 1:
        return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(6)))
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    stage = Stage(build(rank), rank, world)
    for number, (density, mass) in enumerate(snapshots()):
        for _ in range(8):
            losses = stage.run(density, mass, micros=SLABS // SLABS_PER_MICRO)
        if stage.last:
            print(f"box {number}: {torch.stack(losses).mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
