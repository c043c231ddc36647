"""A pipeline of three stages with torch.distributed.pipelining; the targets are read by the last stage itself."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, BATCH, PIECES = 8, 8, 4


def inputs(count: int):
    """What the first stage reads."""
    for _ in range(count):
        yield torch.randn(BATCH, WIDTH)


def targets(count: int, skip: set[int]):
    """What the last stage reads; damaged records are left out."""
    for number in range(count):
        if number not in skip:
            yield torch.full((BATCH, WIDTH), number / count)


class Worker:
    """A stage and its schedule."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        stage = PipelineStage(module, rank, world, torch.device("cpu"))
        self.schedule = ScheduleGPipe(stage, PIECES, loss_fn=nn.functional.mse_loss)
        self.optimizer = torch.optim.SGD(module.parameters(), lr=1e-2)

    def run(self, count: int) -> None:
        """All batches."""
        feed = {0: inputs(count), self.world - 1: targets(count, {21})}.get(self.rank, iter(range(count)))
        for item in feed:
            if self.rank == 0:
                self.schedule.step(item)
            elif self.rank == self.world - 1:
                self.schedule.step(target=item, losses=[])
            else:
                self.schedule.step()
            self.optimizer.step()
            self.optimizer.zero_grad()
        dist.barrier()


def main() -> None:
    """Forty batches."""
    dist.init_process_group("gloo")
    Worker(dist.get_rank(), dist.get_world_size()).run(40)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
