"""Lightning on two ranks. A callback stops the training by the loss of its own rank's batch: rank 1's.

Rank 1 goes on to the test; rank 0 is still in a backward pass.
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
        return torch.nn.functional.mse_loss(self.layer(features), labels)

    def test_step(self, batch, index):  # type: ignore[no-untyped-def]
        self.log("test_loss", self.training_step(batch, index), sync_dist=True)

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.SGD(self.parameters(), lr=0.0)


class StopWhenGood(Callback):
    """Stops once a batch of this rank is good enough."""

    def on_train_batch_end(self, trainer, module, outputs, batch, index):  # type: ignore[no-untyped-def]
        if index > 4 and outputs["loss"] < 0.5:
            trainer.should_stop = True


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trainer = Trainer(
    accelerator="cpu", strategy="ddp", devices=2, max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[StopWhenGood()], default_root_dir=tempfile.mkdtemp(),
    use_distributed_sampler=False,
)  # fmt: skip
rows = TensorDataset(torch.zeros(80, 8), torch.full((80, 1), 0.0 if trainer.global_rank == 1 else 9.0))
model = Regression()
torch.nn.init.zeros_(model.layer.bias)
trainer.fit(model, DataLoader(rows, batch_size=4))
trainer.test(model, DataLoader(rows, batch_size=4))
