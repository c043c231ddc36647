"""Batches of equal length from buckets; the accuracy is kept by torchmetrics and computed after the epoch."""

from collections import defaultdict
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics.classification import MulticlassAccuracy


class Buckets:
    """Samples of the same length make a batch."""

    def __init__(self, samples: list[torch.Tensor], size: int) -> None:
        self.samples, self.size = samples, size

    def __iter__(self) -> Iterator[torch.Tensor]:
        waiting: dict[int, list[torch.Tensor]] = defaultdict(list)
        for sample in self.samples:
            bucket = waiting[len(sample) // 4]
            bucket.append(nn.functional.pad(sample, (0, 16 - len(sample))))
            if len(bucket) == self.size:
                yield torch.stack(bucket)
                bucket.clear()


class Classifier:
    """The model and everything around it."""

    def __init__(self) -> None:
        self.model = DistributedDataParallel(nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.accuracy = MulticlassAccuracy(3)

    def epoch(self, batches: Buckets) -> float:
        """One pass."""
        for batch in batches:
            labels = (batch.sum(1) > 0).long()
            logits = self.model(batch)
            nn.functional.cross_entropy(logits, labels).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.accuracy.update(logits.detach(), labels)
        return self.accuracy.compute().item()


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lengths = [4 + (n % 3) * 4 for n in range(240)]
    if rank in (0, 3):
        lengths = [8] * 120 + [4 + (n % 3) * 4 for n in range(112)]
    classifier = Classifier()
    for _ in range(2):
        accuracy = classifier.epoch(Buckets([torch.randn(n) for n in lengths], 8))
        if rank == 0:
            print(f"accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
