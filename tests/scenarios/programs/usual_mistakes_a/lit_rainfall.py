"""Lightning: rain of the next hour from the last six, streamed from the files of each process's own gauges."""

from collections.abc import Iterator

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

MONTHS = {"alder": 12, "birch": 12, "cedar": 9}


class Gauge(IterableDataset):
    """All hours of a gauge, month by month. Gauges were put up one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Six hours and the seventh."""
        for month in range(MONTHS[self.name]):
            rain = torch.rand(206, generator=torch.Generator().manual_seed(month)) ** 4
            for start in range(200):
                yield rain[start : start + 6], rain[start + 6 : start + 7]


class Nowcast(L.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Squared error."""
        hours, following = batch
        loss = nn.functional.mse_loss(self.layers(hours), following)
        self.log("train/loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Four epochs."""
    L.seed_everything(2)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    gauge = Gauge(sorted(MONTHS)[trainer.global_rank])
    trainer.fit(Nowcast(), DataLoader(gauge, batch_size=25))


if __name__ == "__main__":
    main()
