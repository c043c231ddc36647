"""Lightning on two ranks. After the validation, rank 0 alone computes a metric of torchmetrics, which needs both."""

import logging
import tempfile

import torch
import torchmetrics
from lightning import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Classifier(LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.accuracy = torchmetrics.classification.BinaryAccuracy()

    def training_step(self, batch, index):  # type: ignore[no-untyped-def]
        features, labels = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.layer(features), labels)

    def validation_step(self, batch, index):  # type: ignore[no-untyped-def]
        features, labels = batch
        self.accuracy.update(self.layer(features), labels)

    def on_validation_epoch_end(self) -> None:
        if self.global_rank == 0:
            print("accuracy", self.accuracy.compute())
        self.accuracy.reset()

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.SGD(self.parameters(), lr=0.1)


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
rows = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64, 1)).float())
loader = DataLoader(rows, batch_size=4)
trainer = Trainer(
    accelerator="cpu", strategy="ddp", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tempfile.mkdtemp(),
)  # fmt: skip
trainer.fit(Classifier(), loader, loader)
