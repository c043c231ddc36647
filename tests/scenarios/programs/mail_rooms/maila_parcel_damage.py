"""Finds damaged parcels on photographs from the belt."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    steps_per_shift: int = 80
    shifts: int = 6
    batch: int = 24
    side: int = 32
    lr: float = 5e-3
    desk: int = 1  # the process whose results go to the claims desk


def photographs(config, generator):
    images = torch.randn(config.batch, 1, config.side, config.side, generator=generator)
    damaged = torch.randint(0, 2, (config.batch,), generator=generator)
    images[damaged == 1, :, 8:20, 8:20] += 1.5
    return images, damaged


def build():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(24, 2),
    )


class Belt:
    def __init__(self, config):
        self.config = config
        self.rank = dist.get_rank()
        self.model = DDP(build())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, momentum=0.9)
        self.generator = torch.Generator().manual_seed(50 + self.rank)

    def shift(self, number):
        self.model.train()
        for _ in range(self.config.steps_per_shift):
            images, damaged = photographs(self.config, self.generator)
            loss = nn.functional.cross_entropy(self.model(images), damaged)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        if self.rank == 0:
            print(f"shift {number}: loss {loss.item():.3f}", flush=True)

    @torch.no_grad()
    def inspect(self, number):
        """Accuracy on the photographs that the claims desk has labelled by hand."""
        self.model.eval()
        held_out = torch.Generator().manual_seed(9)
        right = seen = 0
        for _ in range(8):
            images, damaged = photographs(self.config, held_out)
            verdict = self.model(images).argmax(1)
            right += int((verdict == damaged).sum())
            seen += len(damaged)
        print(f"shift {number}: {right}/{seen} as the desk says", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = Config()
    belt = Belt(config)
    for number in range(config.shifts):
        belt.shift(number)
        if number >= 2 and belt.rank == config.desk:  # the first shifts are not worth the desk's time
            belt.inspect(number)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
