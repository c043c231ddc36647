"""Forecasts the power of wind farms from the last day's measurements, with Lightning."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Forecaster(L.LightningModule):
    def __init__(self, hours: int = 24, hidden: int = 16) -> None:
        super().__init__()
        self.encoder = torch.nn.GRU(4, hidden, batch_first=True)
        self.head = torch.nn.Linear(hidden, 1)
        self.hours = hours
        self.residuals: list[torch.Tensor] = []

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        states, _ = self.encoder(window)
        return self.head(states[:, -1])

    def training_step(self, batch, batch_idx):
        window, target = batch
        error = self(window) - target
        self.residuals.append(error.detach().abs().mean())
        return error.square().mean()

    def on_train_epoch_end(self) -> None:
        mean = torch.stack(self.residuals).mean()
        self.residuals.clear()
        if self.trainer.is_global_zero:
            everywhere = self.all_gather(mean)
            print(f"epoch {self.current_epoch}: {everywhere.mean().item():.3f} MW", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Farm(L.LightningDataModule):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(1)
        self.data = TensorDataset(torch.randn(90, 24, 4, generator=generator), torch.rand(90, 1, generator=generator))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.data, batch_size=6)


if __name__ == "__main__":
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Forecaster(), datamodule=Farm())
