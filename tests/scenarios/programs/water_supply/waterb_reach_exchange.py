"""One-dimensional flow in a chain of canal reaches that closes on itself, a reach per process."""
import enum
import os

import torch
import torch.distributed as dist

CELLS = 4096
GHOST = 512


class Scheme(enum.Enum):
    EXPLICIT = "explicit"
    RELAXATION = "relaxation"


class Reach:
    def __init__(self, index, count):
        self.index = index
        self.upstream = (index - 1) % count
        self.downstream = (index + 1) % count
        x = torch.linspace(0, 6.28, CELLS)
        self.level = 2.0 + 0.1 * torch.sin(x + index)

    def advance(self, inflow, substeps=120):
        field = torch.cat([inflow, self.level])
        for _ in range(substeps):
            field = field - 0.2 * (field - field.roll(1))
        self.level = field[GHOST:]


class Solver:
    """Explicit steps while the flow is calm; steep fronts are relaxed in a downstream sweep."""

    def __init__(self, reach, steep):
        self.reach = reach
        self.steep = steep
        self.halo = torch.zeros(GHOST)

    def scheme(self):
        front = (self.reach.level[1:] - self.reach.level[:-1]).abs().max().view(1)
        dist.all_reduce(front, op=dist.ReduceOp.MAX)
        return Scheme.RELAXATION if front.item() > self.steep else Scheme.EXPLICIT

    def explicit(self):
        outflow = self.reach.level[-GHOST:].contiguous()
        sent = dist.isend(outflow, dst=self.reach.downstream)
        dist.recv(self.halo, src=self.reach.upstream)
        sent.wait()
        self.reach.advance(self.halo)

    def relaxation(self, sweeps=2):
        for _ in range(sweeps):
            upstream = self.reach.upstream
            incoming = torch.empty(GHOST)
            dist.recv(incoming, src=upstream)
            self.reach.advance(incoming, substeps=10)
            dist.send(self.reach.level[-GHOST:].contiguous(), dst=self.reach.downstream)

    def step(self):
        getattr(self, self.scheme().value)()


def gate_operation(reach, step):
    """The gate at the head of reach 1 is opened in the evening."""
    if reach.index == 1 and step == 500:
        reach.level[:64] += 0.8


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    reach = Reach(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    solver = Solver(reach, steep=0.3)
    for step in range(3000):
        gate_operation(reach, step)
        solver.step()
        if step % 100 == 0:
            print(f"reach {reach.index} step {step} mean level {reach.level.mean():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
