"""Lightning on two ranks. In the validation, rank 0 alone logs a value with ``sync_dist=True``, which needs both.

Lightning averages it when the validation ends: the line that has logged it is on no stack any more.
"""

import logging
import tempfile

import torch
from lightning import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Regression(LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):  # type: ignore[no-untyped-def]
        features, labels = batch
        return torch.nn.functional.mse_loss(self.layer(features), labels)

    def validation_step(self, batch, index):  # type: ignore[no-untyped-def]
        predicted = self.layer(batch[0])
        if self.global_rank == 0:
            self.log("spread", predicted.std(), sync_dist=True)

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.SGD(self.parameters(), lr=0.1)


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(rows, batch_size=4)
trainer = Trainer(
    accelerator="cpu", strategy="ddp", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tempfile.mkdtemp(),
)  # fmt: skip
trainer.fit(Regression(), loader, loader)
