"""Lightning: every rank reduces its figures in a callback, and the first one draws them, slowly."""

import logging
import time

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Drawing(Callback):
    """The spread of the weights' gradients after an epoch."""

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        """Gather on all, draw on one."""
        norms = module.all_gather(torch.stack([p.norm() for p in module.parameters()]).detach())
        if trainer.is_global_zero:
            time.sleep(1.5)
            print(f"epoch {trainer.current_epoch}: {norms.std(0).tolist()}", flush=True)


class Net(lightning.LightningModule):
    """A regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(7, 1)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Squared outputs; the mean over all ranks goes to the log."""
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Four epochs."""
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Drawing()],
    )
    trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(90, 7)), batch_size=4))


if __name__ == "__main__":
    main()
