"""``torch.distributed.pipelining``: the first stage reads its batches from a pipe that another process stops filling."""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH = 8, 8
SOURCE = f"""
import sys, time
for _ in range(25):
    sys.stdout.buffer.write(bytes({WIDTH * BATCH}))
    sys.stdout.buffer.flush()
time.sleep(3600)
"""


def main() -> None:
    """Train a chain of three blocks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    place, places = dist.get_rank(), dist.get_world_size()
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    stage = PipelineStage(block, place, places, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.mse_loss)
    source = subprocess.Popen([sys.executable, "-c", SOURCE], stdout=subprocess.PIPE) if place == 0 else None
    for _ in range(200):
        if source is not None and source.stdout is not None:
            raw = source.stdout.read(WIDTH * BATCH)
            schedule.step(torch.frombuffer(bytearray(raw), dtype=torch.uint8).float().view(BATCH, WIDTH))
        elif place == places - 1:
            schedule.step(target=torch.zeros(BATCH, WIDTH), losses=[])
        else:
            schedule.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
