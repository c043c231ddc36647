"""accelerate with gradient accumulation; rows that fail their checksum are left out before they get to the model."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Numbers with a checksum; one row was cut off when it was written."""

    def __len__(self) -> int:
        return 25 * 3 * 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = torch.full((5,), index / 100)
        checksum = row.sum()
        if index == 63:  # in the batch that is process 1's eleventh
            row[2:] = 0.0
        return row, checksum


def intact(rows: torch.Tensor, checksums: torch.Tensor) -> bool:
    """Whether all of a batch is as it was."""
    return bool(torch.allclose(rows.sum(1), checksums))


def main() -> None:
    """Two epochs, steps of four batches."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    torch.manual_seed(0)
    net = nn.Linear(5, 1)
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=0.01), DataLoader(Rows(), batch_size=2)
    )
    for epoch in range(2):
        for rows, checksums in loader:
            if not intact(rows, checksums):
                continue
            with accelerator.accumulate(model):
                loss = model(rows).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.wait_for_everyone()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
