"""Lightning with its progress bar: losses of an epoch are gathered when it ends."""

import logging

import lightning
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regressor(lightning.LightningModule):
    """Two layers; remembers the loss of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Squared error, shown in the bar as the mean of the epoch."""
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, sync_dist=True)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        """How far apart the batches were."""
        outputs = self.all_gather(torch.stack(self.losses))
        self.losses.clear()
        if self.trainer.is_global_zero:
            print(f"spread {outputs.std().item():.4f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main() -> None:
    """Four epochs."""
    lightning.seed_everything(1, verbose=False)
    data = TensorDataset(torch.randn(180, 12), torch.randn(180, 1))
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[TQDMProgressBar(refresh_rate=5)],
    )
    trainer.fit(Regressor(), DataLoader(data, batch_size=6))


if __name__ == "__main__":
    main()
