"""Anomaly detection on reaction wheel currents: an autoencoder in Lightning, alarms are listed after every validation."""
import os
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WHEELS = 4


def wheel_currents(wheel_set, samples, seed):
    """Windows of 16 samples of four wheels; spikes of friction differ from one wheel set to the next."""
    gen = torch.Generator().manual_seed(seed)
    windows = torch.randn(samples, WHEELS * 16, generator=gen).clamp(-3, 3)
    spike = {0: 5.2, 1: 9.0, 2: 9.5}[wheel_set]
    windows[::20, 7] = spike
    return TensorDataset(windows)


class WheelAutoencoder(L.LightningModule):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WHEELS * 16, 32), nn.ReLU(), nn.Linear(32, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, WHEELS * 16))
        self.alarms = []

    @property
    def limit(self):
        # becomes stricter as the model settles
        return 4.0 + 0.5 * self.current_epoch

    def training_step(self, batch, index):
        (x,) = batch
        time.sleep(0.01)
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def on_validation_epoch_start(self):
        self.alarms = []

    def validation_step(self, batch, index):
        (x,) = batch
        peak = x.abs().amax(dim=1)
        error = (self.decoder(self.encoder(x)) - x).square().mean(dim=1)
        for p, e in zip(peak, error):
            if p > self.limit:
                self.alarms.append(torch.stack([p, e]))

    def on_validation_epoch_end(self):
        if not self.alarms:
            return
        worst = max(self.alarms, key=lambda a: a[0].item())
        fleet = self.all_gather(worst)
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch}: limit {self.limit:.1f} A, fleet peaks {fleet[:, 0].tolist()}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def loaders():
    wheel_set = int(os.environ["RANK"])
    train = DataLoader(wheel_currents(wheel_set, 480, 10 + wheel_set), batch_size=16)
    val = DataLoader(wheel_currents(wheel_set, 120, 50 + wheel_set), batch_size=40)
    return train, val


def main():
    L.seed_everything(1)
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu", strategy="ddp", devices=int(os.environ["WORLD_SIZE"]), max_epochs=10,
        use_distributed_sampler=False, num_sanity_val_steps=0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(WheelAutoencoder(), *loaders())


if __name__ == "__main__":
    main()
