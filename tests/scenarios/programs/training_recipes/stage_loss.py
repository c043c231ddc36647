"""``torch.distributed.pipelining``, three stages; the loss, which the last one has, is printed by the first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, BATCH = 8, 12


def report(step: int, losses: list[torch.Tensor], is_last: bool) -> None:
    """Every tenth step."""
    if step % 10 != 9:
        return
    mean = torch.zeros(1)
    if is_last:
        mean += torch.stack(losses).mean().detach()
        dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step}: {mean.item():.4f}", flush=True)


def main() -> None:
    """Fifty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    place, places = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(place)
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    stage = PipelineStage(block, place, places, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 3, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    for step in range(50):
        losses: list[torch.Tensor] = []
        optimizer.zero_grad()
        if stage.is_first:
            schedule.step(torch.randn(BATCH, WIDTH))
        elif stage.is_last:
            schedule.step(target=torch.zeros(BATCH, WIDTH), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        report(step, losses, stage.is_last)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
