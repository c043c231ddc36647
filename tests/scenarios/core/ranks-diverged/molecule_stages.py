"""Trains a model of molecules in stages, with the pipelines of torch; the last stage knows how good it is."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WIDTH, BATCH = 48, 16
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def microbatches(rank, small_card):
    """A card with less memory takes its batches in smaller pieces."""
    return 8 if rank == small_card else 4


def mean_error(loss, world):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / world


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=SCHEDULES, default="gpipe")
    parser.add_argument("--small-card", type=int, default=-1)
    parser.add_argument("--report-every", type=int, default=0)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)).to(device)
    stage = PipelineStage(layers, rank, world, device)
    pieces = microbatches(rank, options.small_card)
    schedule = SCHEDULES[options.schedule](stage, pieces, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
    for step in range(1, 41):
        if rank == 0:
            schedule.step(torch.randn(BATCH, WIDTH, device=device))
        elif rank == world - 1:
            losses = []
            schedule.step(target=torch.randn(BATCH, WIDTH, device=device), losses=losses)
            if options.report_every and step % options.report_every == 0:
                print(f"step {step}: error {mean_error(torch.stack(losses).sum(), world):.3f}", flush=True)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        print(f"[{rank}] step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
