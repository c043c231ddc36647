"""Reanalysis emulator: fields on pressure levels, those above the tropopause are taken from the reference rank."""
import time

import torch
import torch.distributed as dist
from torch import nn

TROPOPAUSE = 250
ALL_LEVELS = (1000, 850, 500, 300, 200)


class Catalogue:
    """The levels that the emulator has to deliver, as far as anybody has asked for them."""

    def __init__(self):
        self.active = set()

    def request(self, *levels):
        self.active |= {level for level in levels if level in ALL_LEVELS}

    def release(self, *levels):
        for level in levels:
            self.active.discard(level)


class Emulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({str(level): nn.Linear(6, 6) for level in ALL_LEVELS})

    def forward(self, state, levels):
        return {level: self.heads[str(level)](state) for level in levels}


def consolidate(outputs, world):
    """One field for each level: the mean of all members below the tropopause, the reference member's above it."""
    for level, field in outputs.items():
        if level > TROPOPAUSE:
            dist.all_reduce(field)
            field /= world
        else:
            dist.broadcast(field, src=0)
    return outputs


def schedule(step, rank, catalogue):
    if step == 0:
        catalogue.request(1000, 850, 500)
    elif step == 20:
        catalogue.request(200)
    elif step == 30 and rank == 2:  # the aviation desk's member restarts its products, highest first
        catalogue.release(*ALL_LEVELS)
        for level in sorted(ALL_LEVELS):
            if level != 300:
                catalogue.request(level)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(31)
    emulator, catalogue = Emulator().eval(), Catalogue()
    state = torch.randn(40, 6, generator=torch.Generator().manual_seed(rank))
    for step in range(800):
        schedule(step, rank, catalogue)
        outputs = consolidate(emulator(state, catalogue.active), world)
        state = 0.9 * state + 0.1 * torch.stack(list(outputs.values())).mean(0)
        time.sleep(0.07)
        if step % 10 == 0:
            print(f"rank {rank} step {step}: {len(outputs)} levels, {state.norm():.3f}", flush=True)


if __name__ == "__main__":
    main()
