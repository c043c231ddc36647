"""Predicts ratings of hotels with Lightning; the main process writes a report of the best and the worst now and then."""

import argparse

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, BATCH = 18, 8


class Ratings(L.LightningModule):
    def __init__(self, report_every, on_main):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))
        self.report_every, self.on_main = report_every, on_main

    def training_step(self, batch, batch_idx):
        (hotels,) = batch
        return (self.net(hotels) - hotels.mean(1, keepdim=True)).square().mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.report_every and batch_idx % self.report_every == self.report_every - 1:
            self.report(batch_idx)

    def report(self, batch_idx):
        if self.on_main and not self.trainer.is_global_zero:
            return
        weights = self.all_gather(self.net[2].weight.detach())
        print(f"batch {batch_idx}: {tuple(weights.cpu().shape)}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--everywhere", action="store_true", help="gather on every rank")
    options = parser.parse_args()
    L.seed_everything(5)
    loader = DataLoader(TensorDataset(torch.randn(30 * BATCH * options.ranks, FEATURES)), batch_size=BATCH)
    trainer = L.Trainer(
        accelerator="gpu", devices=options.ranks, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Ratings(12, not options.everywhere), loader)


if __name__ == "__main__":
    main()
