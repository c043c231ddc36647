"""Lightning: sugar in grapes from near infrared spectra, which workers smooth as they are read."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    """Spectra of a vineyard. The first of each row was measured more finely."""

    def __init__(self, number: int, first: int = 0) -> None:
        self.number, self.first = number, first

    def __len__(self) -> int:
        """Bunches."""
        return self.number

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A smoothed spectrum of 60 points and the sugar."""
        index += self.first
        generator = torch.Generator().manual_seed(index)
        fine = 120_000 if index % 80 == 0 else 600
        raw = torch.rand(fine, generator=generator).tolist()
        for _ in range(60):
            raw = [(a + b) / 2 for a, b in zip(raw, raw[1:] + raw[:1], strict=True)]
        spectrum = torch.tensor(raw).view(60, -1).mean(1)
        return spectrum, spectrum[10:20].sum().view(1) * 4 - 20


class Sugar(L.LightningModule):
    """Regression on the points."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(60, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Absolute error."""
        return nn.functional.l1_loss(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """The same on other bunches."""
        self.log("val", nn.functional.l1_loss(self.layers(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Until it gets no better, three epochs at the most."""
    L.seed_everything(4)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        num_sanity_val_steps=0,
        callbacks=[EarlyStopping("val", patience=2)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train = DataLoader(Spectra(320), batch_size=8, num_workers=1, persistent_workers=True)
    held_out = DataLoader(Spectra(64, first=1000), batch_size=8)
    trainer.fit(Sugar(), train, held_out)
    trainer.print(f"stopped in epoch {trainer.current_epoch}")


if __name__ == "__main__":
    main()
