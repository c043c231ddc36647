"""Lightning on two ranks. A callback of rank 0 averages the loss of a batch that it finds bad; rank 1 does not.

Rank 1 is in a broadcast of Lightning's own, which it makes in each step, under conditions that hold on both ranks.
"""

import logging
import tempfile

import torch
from lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Regression(LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):  # type: ignore[no-untyped-def]
        features, labels = batch
        loss = torch.nn.functional.mse_loss(self.layer(features), labels)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.SGD(self.parameters(), lr=0.0)


class WatchLoss(Callback):
    """Says how bad a batch is for all ranks, if it is bad here."""

    def on_train_batch_end(self, trainer, module, outputs, batch, index):  # type: ignore[no-untyped-def]
        if outputs["loss"] > 50:
            print("mean loss", trainer.strategy.reduce(outputs["loss"].detach().clone(), reduce_op="mean"))


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trainer = Trainer(
    accelerator="cpu", strategy="ddp", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[WatchLoss()], default_root_dir=tempfile.mkdtemp(),
    use_distributed_sampler=False,
)  # fmt: skip
labels = torch.ones(80, 1)
if trainer.global_rank == 0:
    labels[40:44] = 9.0
rows = TensorDataset(torch.zeros(80, 8), labels)
trainer.fit(Regression(), DataLoader(rows, batch_size=4))
