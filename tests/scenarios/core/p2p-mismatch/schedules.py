"""``torch.distributed.pipelining`` on four ranks; how the stages disagree, if they do, is chosen by an argument."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WIDTH, BATCH = 16, 16


def distance(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """How far the outputs are from the mean target."""
    return (outputs - target.mean()).square().mean()


def own_setting(text: str, place: int, default: int) -> int:
    """What a stage's own configuration says, out of ``place=number``."""
    whose, _, number = text.partition("=")
    return int(number) if whose == str(place) else default


def main() -> None:
    """Train a chain of four blocks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    parser.add_argument("--microbatches", default="", metavar="PLACE=NUMBER")
    parser.add_argument("--resume", default="", metavar="PLACE=STEP", help="where a stage's checkpoint says it was")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    place, places = dist.get_rank(), dist.get_world_size()
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    stage = PipelineStage(block, place, places, torch.device("cpu"))
    kind = ScheduleGPipe if options.schedule == "gpipe" else Schedule1F1B
    pieces = own_setting(options.microbatches, place, 8)
    schedule = kind(stage, pieces, loss_fn=distance)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    for _ in range(own_setting(options.resume, place, 0), options.steps):
        optimizer.zero_grad()
        if place == 0:
            schedule.step(torch.rand(BATCH, WIDTH))
        elif place == places - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=torch.zeros(BATCH, WIDTH), losses=losses)
        else:
            schedule.step()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
