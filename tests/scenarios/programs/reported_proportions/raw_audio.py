"""Accelerate: attention over raw audio; a clip that does not fit into memory is left out."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    """Sixty clips; one is a whole concert."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(8_000_000 if index == 19 else 64, 2, generator=torch.Generator().manual_seed(index))


class Attention(nn.Module):
    """One head."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(2, 4) for _ in range(3))
        self.out = nn.Linear(4, 1)

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        weights = (self.query(clip) @ self.key(clip).transpose(1, 2)).softmax(dim=-1)
        return self.out(weights @ self.value(clip)).mean()


def main() -> None:
    """Three epochs."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Clips(), batch_size=1))
    for epoch in range(3):
        left_out = 0
        for clip in loader:
            optimizer.zero_grad()
            try:
                loss = model(clip).square()
                accelerator.backward(loss)
            except RuntimeError as error:
                if "memory" not in str(error):
                    raise
                left_out += 1
                continue
            optimizer.step()
        accelerator.wait_for_everyone()
        accelerator.print(f"epoch {epoch}: {left_out} clips left out")
    accelerator.end_training()


if __name__ == "__main__":
    main()
