"""Solar yield model in Lightning; half-way the weights are packed for the edge inverters."""
import os
import subprocess
import tempfile
import time

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset

PACK = """
set -e
cd "$1"
for layer in $(seq 1 12); do
    head -c 65536 weights.pt | gzip -9 > "layer_$layer.gz"
    cksum "layer_$layer.gz" >> manifest
    sleep 1.1
done
"""


class Yield(Dataset):
    def __len__(self):
        return 720

    def __getitem__(self, n):
        x = torch.tensor([n % 24 / 24, n % 365 / 365, (n * 7) % 11 / 11])
        return x, torch.sin(3.14159 * x[:1]) * (1 - 0.4 * x[2:])


class YieldModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 24), torch.nn.SiLU(), torch.nn.Linear(24, 1))

    def training_step(self, batch, index):
        x, y = batch
        time.sleep(0.08)
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class EdgeExport(L.Callback):
    def __init__(self, at_step):
        self.at_step = at_step

    def pack(self, module):
        with tempfile.TemporaryDirectory() as folder:
            torch.save(module.state_dict(), os.path.join(folder, "weights.pt"))
            subprocess.run(["sh", "-c", PACK, "pack", folder], check=True)
            with open(os.path.join(folder, "manifest")) as f:
                return len(f.readlines())

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step != self.at_step:
            return
        if trainer.is_global_zero:
            layers = self.pack(module)
            print(f"step {trainer.global_step}: {layers} layers packed", flush=True)
        trainer.strategy.barrier("edge-export")


def main():
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_steps=70, max_epochs=4, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[EdgeExport(at_step=36)])
    trainer.fit(YieldModel(), DataLoader(Yield(), batch_size=8, shuffle=True))
    if trainer.is_global_zero:
        print(f"finished at step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main()
