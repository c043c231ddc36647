"""Supernova typing (Ia or not) with Lightning; the run may be ended early through a shared control file."""
import json
import os
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
EPOCHS, BANDS = 16, 4


def light_curves(count, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 2, (count,), generator=g)
    t = torch.linspace(-1, 3, EPOCHS)
    decline = 1.0 + 0.6 * label[:, None].float()
    flux = torch.exp(-t.clamp_min(0) * decline) * torch.sigmoid(4 * t + 3)
    flux = flux[:, None] * (1 - 0.15 * torch.arange(BANDS))[None, :, None]
    return flux + 0.05 * torch.randn(count, BANDS, EPOCHS, generator=g), label


class Typer(L.LightningModule):
    def __init__(self, width=128):
        super().__init__()
        self.gru = nn.GRU(BANDS, width, batch_first=True)
        self.top = nn.Linear(width, 2)

    def forward(self, x):
        return self.top(self.gru(x.transpose(1, 2))[0][:, -1])

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        if index % 20 == 0:
            self.print(f"{index}: {loss.item():.4f}")
        return loss

    def test_step(self, batch, index):
        x, y = batch
        accuracy = (self(x).argmax(1) == y).float().mean()
        self.log("purity", accuracy, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class ControlFile(Callback):
    """Reads requests of the operators and tells them how far the run is."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if not trainer.is_global_zero:
            return
        (self.folder / "progress.json").write_text(json.dumps({"step": trainer.global_step, "loss": float(outputs["loss"])}))
        request = self.folder / "request.json"
        if request.exists():
            order = json.loads(request.read_text())
            if order.get("stop_below", 0) > float(outputs["loss"]):
                trainer.should_stop = True


def main():
    torch.set_num_threads(1)
    L.seed_everything(8)
    folder = Path(os.environ.setdefault("TYPER_CONTROL", tempfile.mkdtemp(prefix="typer-")))
    (folder / "request.json").write_text(json.dumps({"stop_below": 0.12, "by": "shift"}))
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=400,
        min_steps=100,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ControlFile(folder)],
    )
    model = Typer()
    train = DataLoader(TensorDataset(*light_curves(60000, 1)), batch_size=32, shuffle=True)
    trainer.fit(model, train)
    print(f"[{trainer.global_rank}] ended after {trainer.global_step} steps", flush=True)
    trainer.test(model, DataLoader(TensorDataset(*light_curves(960, 2)), batch_size=64), verbose=False)


if __name__ == "__main__":
    main()
