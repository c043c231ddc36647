"""DDP: faults of compressors; handlers are told of the end of an epoch, and a broken handler must not end training."""

import logging
from collections import defaultdict
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULTY_HOURS = (13, 71, 130, 190, 260, 301, 372, 500, 555, 610, 700)
HOURS = 60


class Events:
    """Who wants to hear of what."""

    def __init__(self) -> None:
        self.handlers: dict[str, list[Callable]] = defaultdict(list)

    def emit(self, name: str, **facts: object) -> None:
        """Tells all handlers."""
        for handler in self.handlers[name]:
            try:
                handler(**facts)
            except Exception:
                logging.exception("handler %s of %s has failed", handler.__name__, name)


def report_recall(epoch: int, scores: torch.Tensor, faulty: torch.Tensor) -> None:
    """The share of faults found, of each rank."""
    found = int(((scores > 0) & faulty).sum())
    recall = torch.tensor([found / int(faulty.sum())])
    recalls = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(recalls, recall)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: recall {torch.cat(recalls).mean():.3f}")


def main() -> None:
    """An epoch is sixty hours of each compressor."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    events = Events()
    events.handlers["epoch_end"].append(report_recall)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        first = (epoch * world + rank) * HOURS
        faulty = torch.tensor([hour in FAULTY_HOURS for hour in range(first, first + HOURS)])
        vibration = torch.randn(HOURS, 10, generator=torch.Generator().manual_seed(first)) + faulty[:, None]
        scores = []
        for rows in torch.arange(HOURS).split(6):
            logits = model(vibration[rows]).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, faulty[rows].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scores.append(logits.detach())
        events.emit("epoch_end", epoch=epoch, scores=torch.cat(scores), faulty=faulty)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
