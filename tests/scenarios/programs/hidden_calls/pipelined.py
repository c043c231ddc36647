"""A pipeline of four stages that runs as it should, with a first stage whose input is slow at times."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


def main() -> None:
    """Thirty batches."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 3, loss_fn=nn.functional.mse_loss)
    for number in range(30):
        if rank == 0:
            time.sleep(2.0 if number % 10 == 5 else 0.01)
            schedule.step(torch.randn(6, 6))
        elif rank == world - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=torch.zeros(6, 6), losses=losses)
        else:
            schedule.step()
        module.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
