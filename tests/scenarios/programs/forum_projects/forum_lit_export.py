"""Lightning: fit, keep the final weights under a fixed name, and report on the test set."""

import os
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Surrogate(L.LightningModule):
    """A surrogate of a simulator."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 3))

    def _loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def training_step(self, batch, batch_idx):
        return self._loss(batch)

    def test_step(self, batch, batch_idx):
        self.log("test/mse", self._loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class SimulatorData(L.LightningDataModule):
    def setup(self, stage):
        generator = torch.Generator().manual_seed(1)
        x = torch.rand(2400, 12, generator=generator)
        y = torch.stack([x.sum(1), x.prod(1), x.max(1).values], dim=1)
        self.train, self.test = TensorDataset(x[:1800], y[:1800]), TensorDataset(x[1800:], y[1800:])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, shuffle=True)

    def test_dataloader(self):
        return DataLoader(self.test, batch_size=8)


def run_training(trainer: L.Trainer, model: L.LightningModule, data: L.LightningDataModule, workdir: Path):
    trainer.fit(model, datamodule=data)
    if trainer.is_global_zero:
        final = workdir / "surrogate.ckpt"
        trainer.save_checkpoint(final)
        print(f"wrote {final}", flush=True)
    return trainer.test(model, datamodule=data, verbose=False)


def main():
    L.seed_everything(4, verbose=False)
    workdir = Path(tempfile.gettempdir(), f"surrogate-{os.environ['MASTER_PORT']}")
    workdir.mkdir(exist_ok=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=workdir,
    )
    print(run_training(trainer, Surrogate(), SimulatorData(), workdir))


if __name__ == "__main__":
    main()
