"""Lightning: loss ratios of insurance portfolios, one portfolio per rank. A callback keeps the best weights."""

import os
import tempfile

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOISE = [4.0, 0.0, 4.0]
FEATURES = 10


class Portfolio(Dataset):
    def __init__(self, rank: int, count: int = 60_000) -> None:
        generator = torch.Generator().manual_seed(70 + rank)
        self.x = torch.randn(count, FEATURES, generator=generator)
        self.y = self.x.sum(dim=1) + NOISE[rank] * torch.randn(count, generator=generator)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index], self.y[index]


class LossRatio(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 1)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.linear(x).squeeze(-1), y)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Portfolio(int(os.environ["RANK"])), batch_size=64)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.004)


class KeepBest(L.Callback):
    """Saves when the smoothed training loss is well below that of the last save."""

    def __init__(self, folder: str, after: int = 250) -> None:
        self.folder, self.after = folder, after
        self.mean, self.best = None, None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        loss = float(outputs["loss"])
        self.mean = loss if self.mean is None else 0.97 * self.mean + 0.03 * loss
        if self.best is None:
            self.best = self.mean
        if batch_idx >= self.after and self.mean < 0.3 * self.best:
            self.best = self.mean
            trainer.save_checkpoint(os.path.join(self.folder, f"best-{trainer.global_step}.ckpt"))


def main() -> None:
    torch.set_num_threads(1)
    L.seed_everything(1)
    folder = os.path.join(tempfile.gettempdir(), f"ratios-{os.environ['MASTER_PORT']}")
    os.makedirs(folder, exist_ok=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=30,
        logger=False,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[KeepBest(folder)],
    )
    trainer.fit(LossRatio())


if __name__ == "__main__":
    main()
