"""A classifier with batch norm. Every sixth step the main rank collects the predictions of all for its confusion matrix.

The other ranks do not take part: they are in the next forward pass, where DDP broadcasts the batch norm's buffers.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

CLASSES = 5


class Tracker:
    """Keeps the predictions of the last step and the confusion matrix of the whole run."""

    def __init__(self) -> None:
        self.main = dist.get_rank() == 0
        self.confusion = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
        self.pairs: list[tuple[int, int]] = []

    def update(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Remember a batch."""
        self.pairs = list(zip(logits.argmax(1).tolist(), labels.tolist(), strict=True))

    def flush(self, step: int) -> None:
        """Add everybody's pairs to the matrix and print how many are right."""
        everybodys = [None] * dist.get_world_size()
        dist.all_gather_object(everybodys, self.pairs)
        for predicted, label in (pair for pairs in everybodys for pair in pairs):
            self.confusion[label, predicted] += 1
        print(f"step {step}: {self.confusion.diagonal().sum()} right\n", end="", flush=True)


def main() -> None:
    """Forty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, CLASSES))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    tracker = Tracker()
    for step in range(1, 41):
        inputs, labels = torch.randn(8, 12), torch.randint(CLASSES, (8,))
        logits = model(inputs)
        loss = cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.update(logits, labels)
        if step % 6 == 0 and tracker.main:
            tracker.flush(step)
        print(f"step {step}: loss {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
