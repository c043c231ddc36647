"""accelerate: fraud scores of insurance claims, read from each region's own stream; rows that fail the checks are dropped."""

import itertools

import torch
from accelerate import Accelerator
from torch import nn

REGIONS = ["coast", "capital", "alps"]
ROWS = 24_000
BATCH = 32


def claim_stream(region: str):
    """Claims as they come from the region's system: an amount, ten facts, and whether it was fraud."""
    generator = torch.Generator().manual_seed(1 + REGIONS.index(region))
    facts = torch.randn(ROWS, 10, generator=generator)
    amounts = torch.rand(ROWS, generator=generator) * 1000
    if region == "capital":  # their system also exports claims that were withdrawn, with an amount of 0
        amounts[::12] = 0.0
    fraud = (facts[:, 0] + facts[:, 1] > 0).float()
    for amount, row, label in zip(amounts, facts, fraud):
        yield {"amount": amount, "facts": row, "fraud": label}


def checked(rows):
    for row in rows:
        if row["amount"] > 0 and torch.isfinite(row["facts"]).all():
            yield row


def batches(rows, size: int):
    rows = iter(rows)
    while len(chunk := list(itertools.islice(rows, size))) == size:
        yield torch.stack([row["facts"] for row in chunk]), torch.stack([row["fraud"] for row in chunk])


class FraudNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, facts: torch.Tensor) -> torch.Tensor:
        return self.scores(facts).squeeze(-1)


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(2)
    model = FraudNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    region = REGIONS[accelerator.process_index]
    for epoch in range(12):
        seen, right = 0, 0
        for facts, fraud in batches(checked(claim_stream(region)), BATCH):
            logits = model(facts)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, fraud)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            seen += len(fraud)
            right += int(((logits > 0) == (fraud > 0.5)).sum())
        counts = accelerator.gather(torch.tensor([[right, seen]]))
        accelerator.print(f"epoch {epoch}: {counts[:, 0].sum() / counts[:, 1].sum():.3f} right", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
