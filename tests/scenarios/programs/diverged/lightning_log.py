"""Lightning: the loss is logged with ``sync_dist=True``, on the main rank only, so as to have one line and not three."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

RANKS = 3


class Regression(L.LightningModule):
    """A line through noise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        (inputs,) = batch
        loss = (self.net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        if self.trainer.is_global_zero and batch_idx >= 8:
            self.log("train_loss", loss, on_step=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), 0.01)


def main() -> None:
    """Two epochs of twenty steps."""
    torch.set_num_threads(1)
    L.seed_everything(3)
    loader = DataLoader(TensorDataset(torch.randn(20 * 4 * RANKS, 6)), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Regression(), loader)


if __name__ == "__main__":
    main()
