"""Lightning: the ripeness of apples from their spectra, with a data module that makes its files first."""

import tempfile
from pathlib import Path

import lightning as L
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FOLDER = Path(tempfile.gettempdir()) / "orchards"


class Orchards(L.LightningDataModule):
    """Spectra of three orchards."""

    def prepare_data(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        for name in ("north", "south", "river"):
            spectra = torch.rand(120, 16, generator=torch.Generator().manual_seed(len(name)))
            torch.save((spectra, spectra.mean(1, keepdim=True)), FOLDER / f"{name}.pt")
        if dist.is_initialized():
            dist.barrier()

    def setup(self, stage: str) -> None:
        parts = [torch.load(path) for path in sorted(FOLDER.glob("*.pt"))]
        self.apples = TensorDataset(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.apples, batch_size=12, shuffle=True)


class Ripeness(L.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Five epochs."""
    L.seed_everything(3)
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
    trainer.fit(Ripeness(), datamodule=Orchards())


if __name__ == "__main__":
    main()
