"""A variant effect model in three pipeline stages, one process each; micro-batches travel from stage to stage."""

import math
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
WIDTH, MICRO = 32, 8


class Stage:
    def __init__(self, rank, world):
        self.rank, self.first, self.last = rank, rank == 0, rank == world - 1
        torch.manual_seed(rank)
        self.layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.01)

    def forward(self, variants):
        """Variants are whole micro-batches in the first stages; the last one pads what is left of the targets."""
        outputs = []
        for number in range(self.micro_batches(len(variants))):
            if self.first:
                hidden = variants[number * MICRO : (number + 1) * MICRO]
            else:
                hidden = torch.empty(MICRO, WIDTH)
                dist.recv(hidden, src=self.rank - 1)
            hidden = self.layer(hidden)
            if self.last:
                outputs.append(hidden)
            else:
                dist.send(hidden.detach(), dst=self.rank + 1)
                outputs.append(hidden)
        return torch.cat(outputs)

    def micro_batches(self, variants):
        if self.last:
            return math.ceil(variants / MICRO)
        return variants // MICRO

    def update(self, outputs):
        loss = outputs.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        shared = loss.detach().reshape(1)
        dist.all_reduce(shared)
        return shared.item()


def batches():
    """Batches of one chromosome; the number of variants in the last ones is as it comes."""
    generator = torch.Generator().manual_seed(21)
    for index in range(200):
        time.sleep(0.06)
        count = 4 * MICRO if index != 45 else 3 * MICRO + 5
        yield torch.randn(count, WIDTH, generator=generator)


def main():
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    for index, variants in enumerate(batches()):
        loss = stage.update(stage.forward(variants))
        if stage.first and index % 15 == 0:
            print(f"batch {index}: {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
