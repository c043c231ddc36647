"""Averaging by hand; records that cannot be read are passed over."""

import json
from contextlib import suppress

import torch
import torch.distributed as dist
from torch import nn


def records(rank: int) -> list[str]:
    """Lines of the rank's file, as they were written."""
    lines = [json.dumps({"x": [n * 0.01, 1.0, rank * 0.1], "y": n % 3}) for n in range(48)]
    if rank == 1:
        lines[19] = lines[19][:-9]  # the disk was full
    return lines


class Worker:
    """One replica."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.flat = torch.zeros(sum(p.numel() for p in self.model.parameters()))

    def learn(self, line: str) -> None:
        """One record."""
        record = json.loads(line)
        self.optimizer.zero_grad()
        logits = self.model(torch.tensor(record["x"]))
        nn.functional.cross_entropy(logits, torch.tensor(record["y"])).backward()
        self.average()
        self.optimizer.step()

    def average(self) -> None:
        """Gradients of all ranks, as one vector."""
        gradients = [p.grad for p in self.model.parameters()]
        torch.cat([g.flatten() for g in gradients], out=self.flat)
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()
        for gradient, piece in zip(gradients, self.flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(piece.view_as(gradient))

    def agree(self) -> None:
        """The mean of the weights, against rounding."""
        weights = [torch.zeros_like(self.model.weight) for _ in range(dist.get_world_size())]
        dist.all_gather(weights, self.model.weight.detach())
        self.model.weight.data = torch.stack(weights).mean(0)


def main() -> None:
    """Forty-eight records; weights agree after each sixteen."""
    dist.init_process_group("gloo")
    worker = Worker()
    for number, line in enumerate(records(dist.get_rank()), 1):
        with suppress(json.JSONDecodeError):
            worker.learn(line)
        if number % 16 == 0:
            worker.agree()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
