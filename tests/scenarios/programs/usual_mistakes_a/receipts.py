"""DDP: totals of scanned receipts. Batches are filled up to a number of characters, since some receipts are long."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHARACTERS = 4096
LONGEST = (700, 700, 280)


class Receipts:
    """The receipts of one shop, shortest first."""

    def __init__(self, shop: int, number: int = 240) -> None:
        generator = torch.Generator().manual_seed(40 + shop)
        lengths = torch.linspace(20, LONGEST[shop], number).int()
        self.texts = [torch.randint(1, 96, (int(n),), generator=generator) for n in lengths]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Padded batches, and the amount on each receipt."""
        batch: list[torch.Tensor] = []
        for text in self.texts:
            if batch and len(text) * (len(batch) + 1) > CHARACTERS:
                yield self.padded(batch)
                batch = []
            batch.append(text)
        yield self.padded(batch)

    @staticmethod
    def padded(batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros behind the shorter ones."""
        amounts = torch.stack([text.float().mean() for text in batch]) / 96
        return nn.utils.rnn.pad_sequence(batch, batch_first=True), amounts


class Reader(nn.Module):
    """Characters to an amount."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(96, 24, padding_idx=0)
        self.amount = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """One amount a receipt."""
        return self.amount(self.characters(texts).mean(1)).squeeze(1)


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Reader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    receipts = Receipts(shop=rank)
    for epoch in range(5):
        total = 0.0
        for texts, amounts in receipts:
            loss = nn.functional.l1_loss(model(texts), amounts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        totals = [None] * dist.get_world_size()
        dist.all_gather_object(totals, {"shop": rank, "loss": total})
        if rank == 0:
            print(epoch, totals)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
