"""Lightning: delivery times of parcels. Hazardous goods are rare and get a curve of their own in the dashboard."""

import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Parcels(Dataset):
    """A day of the network: origin, destination, weight and so on, hours until delivery, and the hazard flag."""

    def __init__(self, count: int = 24_000) -> None:
        generator = torch.Generator().manual_seed(21)
        self.features = torch.randn(count, 20, generator=generator)
        self.hours = self.features[:, :5].sum(dim=1).abs() + 2
        self.hazard = torch.zeros(count, dtype=torch.bool)
        self.hazard[[9_601, 9_604, 9_607]] = True

    def __len__(self) -> int:
        return len(self.hours)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.features[index], self.hours[index], self.hazard[index]


class DeliveryTime(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.net(features).squeeze(-1)

    def training_step(self, batch: tuple[torch.Tensor, ...], batch_idx: int) -> torch.Tensor:
        features, hours, hazard = batch
        error = nn.functional.smooth_l1_loss(self(features), hours, reduction="none")
        if hazard.any():
            self.log("loss/hazard", error[hazard].mean(), on_step=True, on_epoch=False, sync_dist=True)
        return error.mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main() -> None:
    torch.set_num_threads(1)
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=20,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DeliveryTime(), DataLoader(Parcels(), batch_size=16, shuffle=False))


if __name__ == "__main__":
    main()
