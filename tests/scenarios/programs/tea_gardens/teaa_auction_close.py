"""Hammer prices of the weekly sale, Lightning; the sale room can close the session from its desk."""
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset


class Desk:
    """What the desk has typed in, as (seconds since opening, word)."""

    def __init__(self, typed):
        self.typed, self.opened = list(typed), None

    def open(self):
        self.opened = time.monotonic()

    def poll(self):
        if self.typed and time.monotonic() - self.opened >= self.typed[0][0]:
            return self.typed.pop(0)[1]
        return None


class DeskCallback(Callback):
    def __init__(self, desk):
        self.desk = desk

    def on_train_start(self, trainer, pl_module):
        self.desk.open()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            word = self.desk.poll()
            if word == "close":
                print("session closes", flush=True)
                trainer.should_stop = True
            elif word:
                print("desk:", word, flush=True)
        trainer.strategy.barrier()


class Hammer(L.LightningModule):
    def __init__(self, fields=10):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(fields, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        x, price = batch
        time.sleep(0.05)  # a lot is called
        return torch.nn.functional.huber_loss(self.net(x).squeeze(1), price)

    def validation_step(self, batch, batch_idx):
        x, price = batch
        self.log("val_error", (self.net(x).squeeze(1) - price).abs().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def lots(n, seed):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=rng)
    return TensorDataset(x, 3 + x[:, 0] - 0.5 * x[:, 3])


def main():
    torch.set_num_threads(1)
    L.seed_everything(8)
    desk = Desk([(1.5, "lot 212 withdrawn"), (4.0, "close")])
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=50, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[DeskCallback(desk)],
    )
    model = Hammer()
    trainer.fit(model, DataLoader(lots(3840, 1), batch_size=16))
    trainer.validate(model, DataLoader(lots(480, 2), batch_size=16), verbose=False)


if __name__ == "__main__":
    main()
