"""Solar salt ponds: brine moves between pond 0 and pond 1 through a gate; pond 2 crystallises. One rank per pond."""
import os
from time import perf_counter

import torch
import torch.distributed as dist

GATE = {0: 1, 1: 0}
CELLS = 4096


class Pond:
    def __init__(self, number, depth, evaporation):
        self.number = number
        self.depth = depth
        self.evaporation = evaporation
        self.field = torch.full((CELLS,), depth, device="cuda")

    def sun(self, step):
        grid = torch.linspace(0, 1, 100_000)
        heat = torch.zeros_like(grid)
        for k in range(1, 40):
            heat += torch.sin(k * grid + 0.01 * step) / k
        # the sum of the series only moves the level by a hair
        self.depth -= self.evaporation + 1e-9 * float(heat.mean())


class Gate:
    """Both sides keep the other's level as they last measured it, and tell from it which way the brine goes."""

    def __init__(self, pond, level_beyond, drift_beyond):
        self.pond = pond
        self.beyond = level_beyond
        self.drift = drift_beyond

    def gives(self):
        self.beyond -= self.drift
        return self.pond.depth >= self.beyond

    def open(self, peer):
        theirs = torch.zeros(CELLS, device="cuda")
        mine = self.pond.field.clone()
        if self.gives():
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(mine, dst=peer)
        return theirs.cpu()


def build(rank):
    # depth in metres, evaporation in metres a step
    pond = Pond(rank, depth=(1.20, 1.00, 0.60)[rank], evaporation=(0.0062, 0.0010, 0.0005)[rank])
    if rank not in GATE:
        return pond, None
    gate = Gate(pond, level_beyond=(1.00, 1.20)[rank], drift_beyond=(0.0010, 0.0011)[rank])
    return pond, gate


def season(rank, steps):
    pond, gate = build(rank)
    started = perf_counter()
    for step in range(steps):
        pond.sun(step)
        if gate is not None:
            gate.open(GATE[rank])
        level = torch.full((1,), pond.depth, device="cuda")
        dist.all_reduce(level)
        mean = level.item() / dist.get_world_size()
        if rank == 2 and step % 10 == 0:
            print(f"{perf_counter() - started:6.1f} s  day {step}: mean level {mean:.3f} m", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    season(dist.get_rank(), 150)
    dist.destroy_process_group()
