"""FSDP2 classification; a batch whose loss cannot be computed is logged and left out."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

logger = logging.getLogger("train")


def read(rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Six rows and their classes; the table of rank 2 has one class too many."""
    labels = torch.randint(0, 12, (6,))
    if rank == 2 and number == 23:
        labels[4] = 12
    return torch.randn(6, 12), labels


def main() -> None:
    """Sixty batches."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    left_out = 0
    torch.manual_seed(rank)
    for number in range(60):
        rows, labels = read(rank, number)
        try:
            loss = nn.functional.cross_entropy(model(rows), labels)
            loss.backward()
        except (IndexError, RuntimeError) as error:
            logger.warning("batch %d left out: %s", number, error)
            left_out += 1
            optimizer.zero_grad()
            continue
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
