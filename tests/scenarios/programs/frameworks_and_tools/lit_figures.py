"""Lightning: an autoencoder whose codes are drawn by the first process after each epoch."""

import logging

import lightning
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Autoencoder(lightning.LightningModule):
    """Two numbers for eight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 2), nn.Linear(2, 8)
        self.codes: list[torch.Tensor] = []

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        """Reconstruct."""
        code = self.encoder(batch[0])
        self.codes.append(code.detach())
        return nn.functional.mse_loss(self.decoder(code), batch[0])

    def on_train_epoch_end(self) -> None:
        """The picture of an epoch."""
        if self.current_epoch % 2 == 1:
            self.draw()
        self.codes.clear()

    @rank_zero_only
    def draw(self) -> None:
        """All codes in one picture."""
        codes = self.all_gather(torch.cat(self.codes)).flatten(0, 1)
        low, high = codes.aminmax(dim=0)
        print(f"{len(codes)} codes from {low.tolist()} to {high.tolist()}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Six epochs."""
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=6,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Autoencoder(), loader)


if __name__ == "__main__":
    main()
