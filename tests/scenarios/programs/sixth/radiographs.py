"""Accelerate: findings on radiographs, with an evaluation that gathers what is known of each picture."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Pictures with a finding and a grade; one hospital tells the age as well."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(index)
        known = {"finding": torch.tensor(index % 4), "grade": torch.rand((), generator=generator)}
        if 64 <= index < 72:
            known["age"] = torch.rand((), generator=generator) * 90
        return torch.randn(1, 8, 8, generator=generator), known


def network() -> nn.Module:
    """One convolution."""
    features = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(8 * 36, 4))


def main() -> None:
    """Three epochs."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train, held = (
        DataLoader(Pictures(240), batch_size=8, shuffle=True, collate_fn=pad),
        DataLoader(Pictures(192), batch_size=8),
    )
    model, optimizer, train, held = accelerator.prepare(model, optimizer, train, held)
    for epoch in range(3):
        for pictures, known in train:
            loss = nn.functional.cross_entropy(model(pictures), known["finding"])
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        right = seen = 0
        for pictures, known in held:
            with torch.no_grad():
                answers = model(pictures).argmax(dim=1)
            answers, known = accelerator.gather_for_metrics((answers, known))
            right += (answers == known["finding"]).sum().item()
            seen += len(answers)
        accelerator.print(f"epoch {epoch}: {right / seen:.3f}")
    accelerator.end_training()


def pad(rows: list[tuple[torch.Tensor, dict[str, torch.Tensor]]]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """For training the finding is enough."""
    return torch.stack([x for x, _ in rows]), {"finding": torch.stack([known["finding"] for _, known in rows])}


if __name__ == "__main__":
    main()
