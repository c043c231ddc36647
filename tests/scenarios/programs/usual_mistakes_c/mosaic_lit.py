"""Lightning: stones of a mosaic are coloured in; a tile where nobody has marked a stone teaches nothing."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

TILES = 120
UNMARKED = 43


class Tiles(Dataset):
    """Stones of a tile, and the colours that were marked (-1 where none was)."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(index)
        stones = torch.rand(30, 6, generator=random)
        colours = stones.argmax(dim=1)
        marked = torch.rand(30, generator=random) < (0.0 if index == UNMARKED else 0.5)
        return stones, torch.where(marked, colours, -1)


class Colours(L.LightningModule):
    """The colour of each stone."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 6))

    def train_dataloader(self) -> DataLoader:
        mine = range(self.global_rank, TILES, self.trainer.world_size)
        return DataLoader(Subset(Tiles(TILES), mine), batch_size=1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> None:
        stones, colours = batch
        marked = colours >= 0
        scores = self.net(stones)
        if not marked.any():
            return
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(nn.functional.cross_entropy(scores[marked], colours[marked]))
        nn.utils.clip_grad_value_(self.net.parameters(), 0.5)
        optimizer.step()

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        scores = self.net(batch[0])
        self.log("right", (scores.argmax(dim=2) == batch[1]).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    """Two epochs in the order of the floor, on three processes."""
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Colours(), val_dataloaders=DataLoader(Tiles(30), batch_size=2))
    print(f"right: {trainer.callback_metrics['right'].item():.3f}")


if __name__ == "__main__":
    main()
