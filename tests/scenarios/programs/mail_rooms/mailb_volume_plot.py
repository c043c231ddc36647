"""Weekly parcel volumes with Lightning; a curve is written for the dispatchers every few epochs."""
import logging
import pathlib

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def weekly_volumes(weeks=720, depots=12):
    t = torch.arange(weeks * 7, dtype=torch.float32)
    base = 100 + 20 * torch.sin(2 * torch.pi * t / 7) + 35 * torch.sin(2 * torch.pi * t / 364)
    series = torch.stack([base * (0.6 + 0.1 * d) for d in range(depots)])
    return series.view(depots, weeks, 7).transpose(0, 1).reshape(weeks, depots * 7) / 100


class VolumeModel(L.LightningModule):
    def __init__(self, width=84, hidden=448):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.1))
        self.mixer = nn.Sequential(*[nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(3)])
        self.decoder = nn.Linear(hidden, width)
        self.curve = []

    def forward(self, week):
        return self.decoder(self.mixer(self.encoder(week)))

    def training_step(self, batch, batch_idx):
        week, following = batch
        loss = nn.functional.huber_loss(self(week), following)
        self.curve.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class CurveWriter(Callback):
    def __init__(self, folder, every=6):
        self.folder = pathlib.Path(folder)
        self.every = every

    def setup(self, trainer, pl_module, stage):
        self.folder.mkdir(exist_ok=True)

    def sketch(self, values, height=8):
        top = max(values) or 1.0
        rows = []
        for level in range(height, 0, -1):
            rows.append("".join("#" if v / top * height >= level else " " for v in values))
        return "\n".join(rows)

    def on_train_epoch_end(self, trainer, pl_module):
        if (trainer.current_epoch + 1) % self.every or not pl_module.curve:
            return
        if not trainer.is_global_zero:
            return
        text = self.sketch(pl_module.curve[-60:])
        (self.folder / f"curve-{trainer.current_epoch}.txt").write_text(text)
        trainer.strategy.barrier("curve")


def main():
    L.seed_everything(4)
    torch.set_num_threads(1)
    weeks = weekly_volumes()
    loader = DataLoader(TensorDataset(weeks[:-1], weeks[1:]), batch_size=8, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=15,
        callbacks=[CurveWriter("curves")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(VolumeModel(), loader)
    if trainer.is_global_zero:
        print("finished", trainer.current_epoch, "epochs", flush=True)


if __name__ == "__main__":
    main()
