"""Lightning: the strength of ropes. The size of the gradient is logged now and then."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GradientSize(L.Callback):
    """Logs the norm of the gradient."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_before_optimizer_step(
        self, trainer: L.Trainer, module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if trainer.global_step % self.every == self.every - 1 and trainer.is_global_zero:
            norm = torch.stack([weight.grad.norm() for weight in module.parameters()]).norm()
            module.log("gradient", norm, on_step=True, sync_dist=True)
            print(f"step {trainer.global_step}: gradient {norm:.4f}")


class Ropes(L.LightningModule):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        ropes, strength = batch
        return nn.functional.mse_loss(self.net(ropes).squeeze(1), strength)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Two epochs."""
    L.seed_everything(2)
    ropes = torch.randn(720, 12)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[GradientSize(every=12)],
    )
    trainer.fit(Ropes(), DataLoader(TensorDataset(ropes, ropes.sum(dim=1)), batch_size=8))


if __name__ == "__main__":
    main()
