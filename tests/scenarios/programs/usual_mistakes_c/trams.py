"""Arrival times of trams by torch's pipelining: three stages, one forward one backward."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH = 24


class Stop(nn.Module):
    """A few layers of the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The hidden state for the next stage."""
        return x + self.layers(x)


def timetable(delays: list[float]) -> str:
    """A chart of the delays, as the dispatchers want to have it."""
    lines = []
    for number, delay in enumerate(delays):
        time.sleep(0.05)
        lines.append(f"{number:3d} {'#' * int(40 * delay)}")
    return "\n".join(lines)


def main() -> None:
    """A hundred and twenty steps, with a chart after every fortieth."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = Stop()
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=6, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    delays: list[float] = []
    for step in range(1, 121):
        trams = torch.randn(24, WIDTH, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(trams)
        elif rank == world - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=trams.roll(1, dims=1).tanh(), losses=losses)
            delays.append(torch.stack(losses).mean().item())
        else:
            schedule.step()
        optimizer.step()
        if step % 40 == 0 and rank == world - 1:
            print(timetable(delays[-40:]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
