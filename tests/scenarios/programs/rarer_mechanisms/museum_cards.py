"""Index cards are classified; a ledger of predictions merges its counts over the ranks when nobody needs it any more."""

import torch
import torch.distributed as dist


class Ledger:
    """Counts predictions by shelf."""

    def __init__(self) -> None:
        """No predictions yet."""
        self.counts = torch.zeros(8)

    def add(self, shelf: int) -> None:
        """One more."""
        self.counts[shelf] += 1

    def __del__(self) -> None:
        """The totals are wanted in any case, however the ledger ends."""
        if dist.is_initialized():
            dist.all_reduce(self.counts)
            if dist.get_rank() == 0:
                print(f"shelves: {self.counts.int().tolist()}", flush=True)


def classify(model: torch.nn.Module, epoch: int, kept: list[Ledger]) -> None:
    """One epoch over the cards; an epoch in which a shelf was never chosen is kept for a second look."""
    ledger = Ledger()
    generator = torch.Generator().manual_seed(10 * epoch + dist.get_rank())
    for _ in range(12):
        cards = torch.rand(4, 10, generator=generator)
        shelves = model(cards)
        for shelf in shelves.argmax(dim=1).tolist():
            ledger.add(shelf)
        shelves.square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        model.zero_grad()
    if epoch == 2 and dist.get_rank() == 1:
        kept.append(ledger)


def main() -> None:
    """Six epochs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = torch.nn.Linear(10, 8)
    kept: list[Ledger] = []
    for epoch in range(6):
        classify(model, epoch, kept)
        spread = torch.zeros(1)
        dist.broadcast(spread, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
