"""Lightning: a callback draws pictures on rank zero, which takes a while; validation is reduced over all ranks."""

import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Pictures(L.Callback):
    def on_validation_epoch_end(self, trainer, module):
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        for number in range(10):
            time.sleep(0.2)
            picture = module(torch.randn(1, 6)).detach()
            torch.save(picture, f"/tmp/zero_only_plots_{number}.pt")


class Coder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return (self(batch[0]) - batch[0]).square().mean()

    def validation_step(self, batch, index):
        self.log("val_loss", (self(batch[0]) - batch[0]).square().mean(), sync_dist=True, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        callbacks=[Pictures()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = TensorDataset(torch.randn(300, 6))
    trainer.fit(Coder(), DataLoader(data, batch_size=10), DataLoader(data, batch_size=30))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
