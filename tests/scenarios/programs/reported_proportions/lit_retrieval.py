"""Lightning: a text encoder whose recall is taken over the passages of all ranks, batch by batch."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """Questions with their passages; a rank reads every third one."""

    def __init__(self, size: int, rank: int, world: int) -> None:
        self.numbers = range(size)[rank::world]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.numbers[index])
        question = torch.randn(16, generator=generator)
        return question, question + 0.1 * torch.randn(16, generator=generator)


class Encoder(L.LightningModule):
    """One tower for both."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        question, passage = self.tower(batch[0]), self.tower(batch[1])
        return nn.functional.cross_entropy(question @ passage.T, torch.arange(len(question)))

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        question, passage = self.tower(batch[0]), self.tower(batch[1])
        passages = self.all_gather(passage).flatten(0, 1)
        best = (question @ passages.T).argmax(dim=1) % len(passage)
        self.log("recall", (best == torch.arange(len(question))).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Two epochs."""
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    rank, world = trainer.global_rank, trainer.world_size
    train = DataLoader(Pairs(480, rank, world), batch_size=8)
    held = DataLoader(Pairs(260, rank, world), batch_size=2)
    trainer.fit(Encoder(), train, held)


if __name__ == "__main__":
    main()
