"""Sprite autoencoder with Lightning; the artists' panel may ask for an end of the run between epochs."""
import json
import os
import tempfile
from pathlib import Path

import lightning as L
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PANEL = Path(tempfile.gettempdir(), f"sprite_panel_{os.environ.get('MASTER_PORT', '0')}.json")


class SpriteCoder(L.LightningModule):
    def __init__(self, code=48):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(768, 640), nn.GELU(), nn.Linear(640, code))
        self.decoder = nn.Sequential(nn.Linear(code, 640), nn.GELU(), nn.Linear(640, 768))
        self.last = 0.0

    def training_step(self, batch, batch_idx):
        (sprites,) = batch
        loss = F.mse_loss(self.decoder(self.encoder(sprites)), sprites)
        self.last = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class ArtPanel(L.Callback):
    """Shows progress to the artists and takes their wishes: {"quality": 0.3} ends the run once that is reached."""

    def on_train_start(self, trainer, pl_module):
        if trainer.is_global_zero:
            PANEL.write_text(json.dumps({"quality": 10.0, "from_epoch": 5}))

    def on_train_epoch_end(self, trainer, pl_module):
        if not trainer.is_global_zero:
            return
        wish = json.loads(PANEL.read_text())
        print(f"epoch {trainer.current_epoch}: {pl_module.last:.4f}", flush=True)
        if trainer.current_epoch >= wish["from_epoch"] and pl_module.last < wish["quality"]:
            trainer.should_stop = True


def sprites(count=3 * 16 * 30):
    rng = torch.Generator().manual_seed(64)
    palette = torch.rand(12, 768, generator=rng)
    pick = torch.randint(0, 12, (count,), generator=rng)
    return TensorDataset(palette[pick] + 0.1 * torch.randn(count, 768, generator=rng))


def main():
    L.seed_everything(5)
    model = SpriteCoder()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=200,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ArtPanel()],
    )
    trainer.fit(model, DataLoader(sprites(), batch_size=16, shuffle=True))
    summary = {"epochs": trainer.current_epoch, "loss": model.last}
    table = [None] * dist.get_world_size()
    dist.all_gather_object(table, summary)
    if trainer.is_global_zero:
        print(json.dumps(table), flush=True)
        PANEL.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
