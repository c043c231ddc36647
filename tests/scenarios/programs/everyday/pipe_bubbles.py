"""A pipeline of two stages with few micro-batches, whose second stage has most of the work."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH = 64


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module = Deep(2 if rank == 0 else 150)
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    for step in range(40):
        x = torch.rand(16, WIDTH, generator=torch.Generator().manual_seed(step))
        if rank == 0:
            schedule.step(x)
        else:
            losses = []
            schedule.step(target=x.flip(1), losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            dist.barrier()
    if rank == world - 1:
        print(f"loss {sum(losses).item() / len(losses):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
