"""Lightning: redshifts of galaxies from their magnitudes in five filters."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def survey(number: int, seed: int) -> TensorDataset:
    """Fluxes are counts; a magnitude is their logarithm."""
    generator = torch.Generator().manual_seed(seed)
    fluxes = torch.rand(number, 5, generator=generator) * 100 + 1
    if seed == 1:
        fluxes[997, 2] = -4.0
    magnitudes = -2.5 * torch.log10(fluxes)
    return TensorDataset(magnitudes, torch.rand(number, 1, generator=generator))


class Redshift(L.LightningModule):
    """Photometric redshift."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layers = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """A robust loss, and smaller steps as time goes on."""
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        loss = nn.functional.huber_loss(self.layers(batch[0]), batch[1])
        if not torch.isfinite(loss):
            print(f"[{self.global_rank}] batch {index}: loss {loss.item()}")
            return
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        optimizer.step()
        schedule.step()

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Scatter in the usual form."""
        error = (self.layers(batch[0]) - batch[1]) / (1 + batch[1])
        self.log("val/scatter", error.abs().median(), sync_dist=True)

    def configure_optimizers(self) -> dict:
        """SGD with momentum."""
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)}


def main() -> None:
    """Five epochs."""
    L.seed_everything(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=5,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Redshift(), DataLoader(survey(1600, 1), batch_size=16), DataLoader(survey(320, 2), batch_size=16))


if __name__ == "__main__":
    main()
