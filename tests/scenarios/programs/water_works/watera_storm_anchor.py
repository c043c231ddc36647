"""Storm cells on radar: attention between anchors of a sequence (Lightning, two optimisers by hand)."""
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

REFLECTIVITY = 0.35
FRAMES = 8


class RadarStream(IterableDataset):
    """Sequences of one radar; sites differ in how much weather they see."""

    SITES = ("Feldberg", "Memmingen", "Borkum")
    DRY_DAYS = {"Borkum": (41,)}

    def __init__(self, rank, sequences):
        self.site = self.SITES[rank % 3]
        self.rank, self.sequences = rank, sequences

    def __iter__(self):
        g = torch.Generator().manual_seed(self.rank)
        for day in range(self.sequences):
            time.sleep(0.04)
            field = torch.rand(4, FRAMES, 16, generator=g)
            if day in self.DRY_DAYS.get(self.site, ()):
                field = field * 0.2
            yield field


class CellTracker(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.embed = nn.Linear(16, 32)
        self.advect = nn.GRU(32, 32, batch_first=True)
        self.decode = nn.Linear(32, 16)
        self.total = 0.0

    def anchors(self, field):
        return field.amax(dim=(1, 2)) > REFLECTIVITY

    def training_step(self, field, batch_idx):
        chosen = field[self.anchors(field)]
        if len(chosen) == 0:
            print(f"day {batch_idx}: no cell above {REFLECTIVITY}", flush=True)
            return
        states, _ = self.advect(self.embed(chosen[:, :-1]))
        loss = nn.functional.l1_loss(self.decode(states), chosen[:, 1:])
        slow, fast = self.optimizers()
        slow.zero_grad()
        fast.zero_grad()
        self.manual_backward(loss)
        fast.step()
        if batch_idx % 2:
            slow.step()
        self.total += loss.item()

    def on_train_epoch_end(self):
        losses = self.all_gather(torch.tensor(self.total))
        if self.trainer.is_global_zero:
            print("epoch", self.current_epoch, [round(x, 3) for x in losses.tolist()], flush=True)
        self.total = 0.0

    def configure_optimizers(self):
        slow = torch.optim.SGD(self.embed.parameters(), lr=1e-2)
        fast = torch.optim.Adam([*self.advect.parameters(), *self.decode.parameters()], lr=1e-3)
        return slow, fast


class RadarData(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(RadarStream(self.trainer.global_rank, 60), batch_size=None)


def main():
    torch.set_num_threads(1)
    L.seed_everything(4)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(CellTracker(), datamodule=RadarData())


if __name__ == "__main__":
    main()
