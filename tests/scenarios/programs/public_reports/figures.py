"""Lightning: after each epoch the predictions are drawn for Weights & Biases."""

import logging

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class FigureLogger(Callback):
    """Keypoints of a few samples, as a table."""

    def __init__(self, samples: torch.Tensor) -> None:
        super().__init__()
        self.samples = samples

    def wandb_logger(self, trainer: lightning.Trainer) -> Logger | None:
        """The logger for figures among all loggers."""
        for logger in trainer.loggers:
            if type(logger).__name__ == "WandbLogger":
                return logger
        return None

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        """Draw and wait."""
        if trainer.is_global_zero:
            logger = self.wandb_logger(trainer)
            if logger is None:
                return
            with torch.no_grad():
                points = module(self.samples)
            logger.log_metrics({f"point_{i}": value.item() for i, value in enumerate(points.mean(0))})
        trainer.strategy.barrier()


class PoseNet(lightning.LightningModule):
    """Two coordinates of four points."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Coordinates."""
        return self.net(x)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Squared error."""
        return nn.functional.mse_loss(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Five epochs on 150 frames."""
    lightning.seed_everything(4, verbose=False)
    data = TensorDataset(torch.randn(150, 24), torch.randn(150, 8))
    trainer = lightning.Trainer(
        max_epochs=5,
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[FigureLogger(torch.randn(4, 24))],
    )
    trainer.fit(PoseNet(), DataLoader(data, batch_size=5))


if __name__ == "__main__":
    main()
