"""Lightning: boats of a regatta; after each epoch the first process works out the standings, which takes a while."""

import time

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Standings(L.Callback):
    """Many races, sailed with the model as it is."""

    @rank_zero_only
    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        end = time.monotonic() + 2.5
        wins = torch.zeros(12)
        with torch.no_grad():
            while time.monotonic() < end:
                wins[module.net(torch.rand(12, 8)).argmax()] += 1
        print(f"epoch {trainer.current_epoch}: boat {int(wins.argmax())} leads")


class Boats(L.LightningModule):
    """Eight numbers of a boat and the wind, to its speed."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = (self.net(batch[0]).squeeze(1) - batch[0].prod(dim=1)).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Four epochs on three processes."""
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Standings()],
    )
    trainer.fit(Boats(), DataLoader(TensorDataset(torch.rand(1200, 8)), batch_size=8, shuffle=True))


if __name__ == "__main__":
    main()
