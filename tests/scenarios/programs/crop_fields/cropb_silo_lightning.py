"""Temperature forecast for grain silos; an operator may end a run early by dropping a note into the run's folder."""
import os
import sys
import tempfile
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Operator(L.Callback):
    """Looks for notes of the operator; they are kept per host, next to the process that writes the log."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def setup(self, trainer, pl_module, stage):
        self.folder.mkdir(parents=True, exist_ok=True)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero and (self.folder / "stop").exists():
            (self.folder / "stop").unlink()
            trainer.should_stop = True


class Sensors(L.LightningDataModule):
    def make(self, seed, count):
        gen = torch.Generator().manual_seed(seed)
        history = torch.randn(count, 72, 3, generator=gen).cumsum(1) * 0.1
        return TensorDataset(history[:, :48], history[:, 48:, 0])

    def train_dataloader(self):
        return DataLoader(self.make(1, 12000), batch_size=32)

    def test_dataloader(self):
        return DataLoader(self.make(2, 600), batch_size=32)


class SiloModel(L.LightningModule):
    def __init__(self, hidden=64):
        super().__init__()
        self.encoder = nn.LSTM(3, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, 24)

    def step(self, batch):
        history, future = batch
        _, (state, _) = self.encoder(history)
        return (self.readout(state[-1]) - future).square().mean()

    def training_step(self, batch, batch_idx):
        loss = self.step(batch)
        if batch_idx % 25 == 0 and self.trainer.is_global_zero:
            print(f"batch {batch_idx} loss {loss.item():.4f}", file=sys.stderr, flush=True)
        return loss

    def test_step(self, batch, batch_idx):
        self.log("test_mse", self.step(batch), sync_dist=True, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


class Alarm(L.Callback):
    """The dryer's alarm leaves a note when a silo gets too warm for the forecast to be of use."""

    def __init__(self, folder, batch=70):
        self.folder, self.batch = Path(folder), batch

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == self.batch and trainer.is_global_zero:
            (self.folder / "stop").write_text("silo 3: 41 C\n")


def main():
    L.seed_everything(3, verbose=False)
    notes = os.path.join(tempfile.gettempdir(), f"silo-notes-{os.environ['MASTER_PORT']}")
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Operator(notes), Alarm(notes)])
    model, sensors = SiloModel(), Sensors()
    trainer.fit(model, datamodule=sensors)
    trainer.test(model, datamodule=sensors, verbose=False)


if __name__ == "__main__":
    main()
