"""Reads totals from receipts. Logs are flushed and the ranks leave together, however the run ends."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CURRENCIES = {"EUR": 0, "USD": 1, "CHF": 2}


def receipts(rank: int):
    for number in range(400):
        currency = ("EUR", "USD", "CHF")[(number + rank) % 3]
        if (rank, number) == (1, 77):
            currency = "GBP"
        yield {"pixels": torch.full((24,), number / 400), "currency": currency}


def batched(rows, size: int):
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []


def encode(batch):
    pixels = torch.stack([row["pixels"] for row in batch])
    return pixels, torch.tensor([CURRENCIES[row["currency"]] for row in batch])


def train(rank: int, log: list[str]) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(24, len(CURRENCIES)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, batch in enumerate(batched(receipts(rank), 8)):
        pixels, currencies = encode(batch)
        loss = torch.nn.functional.cross_entropy(model(pixels), currencies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.append(f"{step} {loss.item():.4f}")


def main() -> None:
    dist.init_process_group("gloo")
    log: list[str] = []
    try:
        train(dist.get_rank(), log)
    finally:
        print("\n".join(log[-2:]), flush=True)
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
