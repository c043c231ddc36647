"""Route planner of the tractor convoy: a two-stage pipeline, one stage per GPU, a schedule per number of microbatches."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

torch.set_num_threads(1)

WIDTH, MICRO = 48, 4
LEGS = [16] * 8 + [20] * 4 + [16] * 12 + [18] + [16] * 40  # waypoints per leg; the odd one goes round the crevasses


def stage_module(rank):
    if rank == 0:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


class Schedules:
    """GPipe schedules by their number of microbatches, made at first use."""

    def __init__(self, stage):
        self.stage = stage
        self.made = {}

    def __getitem__(self, microbatches):
        if microbatches not in self.made:
            loss = nn.MSELoss()
            self.made[microbatches] = ScheduleGPipe(self.stage, n_microbatches=microbatches, loss_fn=loss)
        return self.made[microbatches]


def terrain(leg, waypoints):
    """Input of the first stage, in whole microbatches."""
    whole = waypoints - waypoints % MICRO
    return torch.full((whole, WIDTH), leg / 100)


def routes(leg, waypoints):
    """Targets of the last stage, padded to whole microbatches."""
    padded = -(-waypoints // MICRO) * MICRO
    return torch.full((padded, WIDTH), leg / 50)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local)
    module = stage_module(rank).to(device)
    stage = PipelineStage(module, rank, 2, device)
    schedules = Schedules(stage)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for leg, waypoints in enumerate(LEGS):
        time.sleep(0.05)
        optimizer.zero_grad()
        if rank == 0:
            x = terrain(leg, waypoints).to(device)
            schedules[len(x) // MICRO].step(x)
        else:
            target = routes(leg, waypoints).to(device)
            schedules[len(target) // MICRO].step(target=target, losses=[])
        optimizer.step()
        torch.cuda.synchronize()
        if leg % 8 == 0:
            print(f"rank {rank}: leg {leg} planned", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
