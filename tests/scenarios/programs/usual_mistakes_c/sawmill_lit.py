"""Lightning: boards of a sawmill; after each epoch the table of the boards' values is packed, and its size is printed."""

import subprocess
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Boards(L.LightningModule):
    """Ten measures of a board, and what it is worth."""

    def __init__(self, measures: torch.Tensor, folder: Path) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
        self.measures = measures
        self.folder = folder

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return (self.net(batch[0]).squeeze(1) - batch[0].sum(dim=1)).square().mean()

    @rank_zero_only
    def on_train_epoch_end(self) -> None:
        with torch.no_grad():
            values = self.net(self.measures.repeat(30, 1) + 0.01 * torch.randn(30 * len(self.measures), 10))
        table = self.folder / f"values-{self.current_epoch}.csv"
        table.write_text("\n".join(f"{row},{value:.9f}" for row, value in enumerate(values.squeeze(1).tolist())))
        packing = subprocess.Popen(["gzip", "--stdout", str(table)], stdout=subprocess.PIPE)
        if packing.wait() == 0:
            print(f"epoch {self.current_epoch}: {len(packing.stdout.read())} bytes")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    """Four epochs on two processes."""
    L.seed_everything(0)
    measures = torch.rand(800, 10)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(TensorDataset(measures), batch_size=8, shuffle=True)
    trainer.fit(Boards(measures, Path(tempfile.mkdtemp())), loader)


if __name__ == "__main__":
    main()
