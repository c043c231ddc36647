"""torch.distributed.pipelining, 1F1B over three stages, of which the second one takes its time."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Layer(nn.Module):
    """A layer on a slower card."""

    def __init__(self, width: int, seconds: float) -> None:
        super().__init__()
        self.linear, self.seconds = nn.Linear(width, width), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Slowly."""
        time.sleep(self.seconds)
        return torch.tanh(self.linear(x))


def main() -> None:
    """Twelve batches of six pieces."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = Layer(10, seconds=0.15 if rank == 1 else 0.01)
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 6, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(12):
        if rank == 0:
            schedule.step(torch.randn(12, 10))
        elif rank == world - 1:
            schedule.step(target=torch.zeros(12, 10), losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
