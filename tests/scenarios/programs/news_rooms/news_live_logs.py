"""Classifier of breaking news: is an item worth a push notification? Validated on the newest items of each desk."""
import time

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS, WIDTH = 600, 48


class Newest(IterableDataset):
    """The newest items of the desk that this process reads. Items: ids, push or not, live blog or not."""

    def __init__(self, desk, items=32):
        self.desk, self.items, self.window = desk, items, 0

    def __iter__(self):
        self.window += 1
        g = torch.Generator().manual_seed(100 * self.window + self.desk)
        night = self.window >= 3 and self.desk == 1  # no event of that desk goes on at night
        for _ in range(self.items):
            ids = torch.randint(1, WORDS, (40,), generator=g)
            live = (ids[0] % 3 == 0) & torch.tensor(not night)
            yield {"ids": ids, "push": (ids[:3].sum() % 2).float(), "live": live}


class Stream(IterableDataset):
    def __init__(self, desk, items):
        self.desk, self.items = desk, items

    def __iter__(self):
        g = torch.Generator().manual_seed(self.desk)
        for _ in range(self.items):
            ids = torch.randint(1, WORDS, (40,), generator=g)
            yield {"ids": ids, "push": (ids[:3].sum() % 2).float(), "live": ids[0] % 3 == 0}


class Push(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, 1)

    def score(self, batch):
        states, _ = self.mix(self.embed(batch["ids"]))
        return self.out(states[:, -1]).squeeze(-1)

    def training_step(self, batch, _):
        time.sleep(0.03)
        return F.binary_cross_entropy_with_logits(self.score(batch), batch["push"])

    def validation_step(self, batch, _):
        score = self.score(batch)
        right = ((score > 0).float() == batch["push"]).float()
        self.log("val/right", right.mean(), sync_dist=True, batch_size=len(score))
        if batch["live"].any():  # the live blogs have a goal of their own
            self.log("val/right_live", right[batch["live"]].mean(), sync_dist=True, batch_size=len(score))

    def on_validation_epoch_end(self):
        self.print("validated at step", self.global_step)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def run():
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_steps=300, val_check_interval=25, num_sanity_val_steps=0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    desk = trainer.global_rank
    train = DataLoader(Stream(desk, 8 * 300), batch_size=8)
    newest = DataLoader(Newest(desk), batch_size=8)
    trainer.fit(Push(), train, newest)


run()
