"""Vine disease detection with Lightning; the optimisation is manual, as two optimizers share the encoder."""
import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class VineRows(Dataset):
    """Crops of leaves along a row, with the mask of what an expert has labelled."""

    def __init__(self, rows=1440):
        self.rows = rows
        self.pruned = range(308, 324)

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        gen = torch.Generator().manual_seed(row)
        leaf = torch.rand(3, 40, 40, generator=gen)
        labelled = torch.rand(10, 10, generator=gen) < 0.3
        if row in self.pruned:
            labelled = torch.zeros_like(labelled)
        return leaf, torch.randint(0, 4, (10, 10), generator=gen), labelled


class Slope(Sampler):
    """The part of the vineyard that a worker walks through, row by row."""

    def __init__(self, rows, rank, world):
        share = rows // world
        self.part = range(rank * share, (rank + 1) * share)

    def __iter__(self):
        return iter(self.part)

    def __len__(self):
        return len(self.part)


class RowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 24, 4, stride=4), nn.BatchNorm2d(24), nn.GELU(), nn.Conv2d(24, 24, 3, padding=1))
        self.head = nn.Conv2d(24, 4, 1)

    def forward(self, leaf):
        return self.head(self.encoder(leaf))


class VineModule(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.automatic_optimization = False
        self.lr = lr
        self.net = RowNet()

    def forward(self, leaf):
        return self.net(leaf)

    def training_step(self, batch, batch_idx):
        leaf, disease, labelled = batch
        score = self(leaf)
        chosen = score.permute(0, 2, 3, 1)[labelled]
        if len(chosen) == 0:
            return
        loss = nn.functional.cross_entropy(chosen, disease[labelled])
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        self.log("loss", loss, prog_bar=False)

    def configure_optimizers(self):
        slow = torch.optim.SGD(self.net.encoder.parameters(), lr=self.lr / 4)
        fast = torch.optim.Adam(self.net.head.parameters(), lr=self.lr)
        return [slow, fast]


class Vineyard(L.LightningDataModule):
    def train_dataloader(self):
        rows = VineRows()
        return DataLoader(rows, batch_size=4, sampler=Slope(len(rows), self.trainer.global_rank, self.trainer.world_size))


class Progress(Callback):
    def __init__(self, every):
        self.every = every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero and batch_idx % self.every == 0:
            print(f"epoch {trainer.current_epoch} batch {batch_idx} loss {trainer.callback_metrics.get('loss', float('nan')):.3f}", flush=True)


def main():
    L.seed_everything(2)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=4, logger=False, use_distributed_sampler=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Progress(10)])
    trainer.fit(VineModule(), datamodule=Vineyard())


if __name__ == "__main__":
    main()
