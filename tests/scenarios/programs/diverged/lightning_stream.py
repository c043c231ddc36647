"""Lightning on sharded streams: every rank reads its own shards, and their lengths add up to different numbers of batches."""

import os
from collections.abc import Iterator

import lightning as L
import torch
from torch.utils.data import DataLoader, IterableDataset

SHARDS = {"a": 10, "b": 14, "c": 12, "d": 9, "e": 15, "f": 12}


class Shards(IterableDataset):
    """Every second shard, from this rank's on."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for name in sorted(SHARDS)[int(os.environ.get("LOCAL_RANK", "0")) :: 2]:
            for row in range(SHARDS[name]):
                yield torch.full((8,), row / 10)


class Denoiser(L.LightningModule):
    """Takes noise off."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 8)
        self.seen = 0

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        """The loss of a batch."""
        self.seen += len(batch)
        return (self.net(batch + 0.1 * torch.randn_like(batch)) - batch).square().mean()

    def on_train_epoch_end(self) -> None:
        """Say how much all ranks have seen."""
        seen = self.all_gather(torch.tensor(self.seen))
        self.print(f"epoch {self.current_epoch}: {seen.sum().item()} rows")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def main() -> None:
    """Three epochs on two ranks."""
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False, use_distributed_sampler=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Denoiser(), DataLoader(Shards(), batch_size=2))


if __name__ == "__main__":
    main()
