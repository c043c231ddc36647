"""Automatic marking of essays with a check against booklets that two teachers have marked."""
import logging
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="[%(levelname)s] %(message)s")


class Stack:
    """Booklets of one district: features, first mark, and a second mark where there is one."""

    def __init__(self, district, batches=140, size=64):
        self.gen = torch.Generator().manual_seed(district)
        self.second = {2: {66, 90}, 0: {101}}.get(district, set())
        self.batches, self.size = batches, size

    def __iter__(self):
        for number in range(self.batches):
            text = torch.randn(self.size, 30, 64, generator=self.gen)
            first = text.mean((1, 2)) * 10 + 3
            second = first + 0.2 * torch.randn(self.size, generator=self.gen) if number in self.second else None
            yield text, first, second


class Agreement:
    """Quadratic distance between the model, the first and the second teacher."""

    def __init__(self):
        self.sums = torch.zeros(3)

    @cached_property
    def group(self):
        return dist.new_group(backend="gloo")

    def update(self, predicted, first, second):
        local = torch.stack([
            (predicted - first).square().sum(),
            (predicted - second).square().sum(),
            torch.tensor(float(len(first))),
        ])
        dist.all_reduce(local, group=self.group)
        self.sums += local

    def __str__(self):
        one, two, count = self.sums.tolist()
        return f"first {one / max(count, 1):.3f} second {two / max(count, 1):.3f}"


class EssayMarker(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.mark = nn.Linear(64, 1)

    def forward(self, text):
        return self.mark(self.body(text).mean(1)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    marker = DDP(EssayMarker())
    optimizer = torch.optim.Adam(marker.parameters(), lr=1e-3)
    agreement = Agreement()
    for number, (text, first, second) in enumerate(Stack(rank)):
        predicted = marker(text)
        loss = nn.functional.mse_loss(predicted, first)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if second is not None:
            agreement.update(predicted.detach(), first, second)
        if rank == 0 and number % 25 == 0:
            logging.info("batch %d loss %.3f agreement %s", number, loss.item(), agreement)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
