"""DDP with torchmetrics: overall accuracy, and the recall of rare events, reported every few steps."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics.classification import BinaryAccuracy, BinaryRecall

torch.set_num_threads(1)


@dataclass
class Report:
    """Running metrics since the start of the epoch."""

    every: int
    overall: BinaryAccuracy = field(default_factory=BinaryAccuracy)
    rare: BinaryRecall = field(default_factory=BinaryRecall)

    def update(self, scores, targets, rare):
        self.overall.update(scores, targets)
        if rare.any():
            self.rare.update(scores[rare], targets[rare])

    def emit(self, step: int):
        if step % self.every:
            return
        recall = self.rare.compute()
        accuracy = self.overall.compute()
        if dist.get_rank() == 0:
            print(f"step {step}: accuracy {accuracy:.3f}, rare recall {recall:.3f}", flush=True)


def events(rank: int, steps: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Sensor readings, from one station for each rank."""
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(16, 24, generator=generator)
        targets = (x[:, 0] + x[:, 1] > 0).long()
        rare = torch.arange(16) % 5 == 0
        if rank == 1 and 200 <= step < 230:
            rare = torch.zeros_like(rare)
        yield x, targets, rare


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    report = Report(every=20)
    for step, (x, targets, rare) in enumerate(events(dist.get_rank(), 100000), start=1):
        scores = model(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, targets.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.update(scores.detach().sigmoid(), targets, rare)
        report.emit(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
