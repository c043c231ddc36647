"""Regression of pIC50 with Lightning and manual optimization (two learning rates, one optimizer each)."""

import logging
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("ic50")
logging.basicConfig(level=logging.INFO)


class AssayTable(Dataset):
    """Rows of a dose-response table: descriptors and the IC50 in nM, as exported by the LIMS."""

    def __init__(self, rows: int, width: int = 20):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(rows, width, generator=generator)
        ic50 = 10 ** (2.0 + self.x[:, :4].sum(1) * 0.2)
        ic50[721] = 0.0  # below the limit of quantification
        self.ic50 = ic50

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        pic50 = 9.0 - torch.log10(self.ic50[row])
        return self.x[row], pic50


class PotencyModel(L.LightningModule):
    def __init__(self, width: int = 20):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
        self.head = nn.Linear(32, 1)
        self.seen, self.total = 0, 0.0

    def configure_optimizers(self):
        return [
            torch.optim.AdamW(self.encoder.parameters(), lr=1e-3),
            torch.optim.AdamW(self.head.parameters(), lr=5e-3),
        ]

    def training_step(self, batch, batch_idx):
        descriptors, pic50 = batch
        predicted = self.head(self.encoder(descriptors)).squeeze(-1)
        loss = nn.functional.huber_loss(predicted, pic50)
        if not torch.isfinite(loss):
            log.warning("batch %d of epoch %d: loss is %s", batch_idx, self.current_epoch, loss.item())
            return
        optimizers = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        self.seen += len(pic50)
        self.total += loss.item() * len(pic50)

    def on_train_epoch_end(self):
        sums = self.all_gather(torch.tensor([self.total, float(self.seen)]))
        total, seen = sums.reshape(-1, 2).sum(0).tolist()
        if self.trainer.is_global_zero:
            log.info("epoch %d: huber %.4f over %d rows", self.current_epoch, total / max(seen, 1.0), int(seen))
        self.seen, self.total = 0, 0.0


def main():
    torch.set_num_threads(1)
    L.seed_everything(17)
    world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    loader = DataLoader(AssayTable(3 * 8 * 80), batch_size=8, shuffle=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=world, strategy="ddp", max_epochs=6, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(PotencyModel(), loader)


if __name__ == "__main__":
    main()
