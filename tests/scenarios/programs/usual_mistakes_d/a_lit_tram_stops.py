"""Lightning: how many people get off at a stop, from files of journeys that are divided among the processes."""

from collections.abc import Iterator

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LINES = {"1": 90, "2": 90, "5": 90, "7": 90, "11": 60, "14": 90}


class Journeys(IterableDataset):
    """Journeys of some lines, one after the other."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __iter__(self) -> Iterator[torch.Tensor]:
        for line in self.lines:
            generator = torch.Generator().manual_seed(int(line))
            for _ in range(LINES[line]):
                yield torch.randn(9, generator=generator)


class Stops(L.LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def train_dataloader(self) -> DataLoader:
        """This process's lines."""
        mine = list(LINES)[self.trainer.global_rank :: self.trainer.world_size]
        return DataLoader(Journeys(mine), batch_size=15)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = (self.net(batch[:, :8]).squeeze(1) - batch[:, 8]).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self) -> None:
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch} has ended")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Three epochs."""
    L.seed_everything(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Stops())


if __name__ == "__main__":
    main()
