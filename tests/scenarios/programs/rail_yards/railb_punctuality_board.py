"""Punctuality of passenger lines with Lightning; after some epochs a league table of lines is printed."""
import logging
import os

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("punctuality")
LINES = ["S1", "S2", "RE7", "IR36", "IC5", "IC8"]


class Journeys(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.weather = torch.rand(count, 5, generator=gen)
        self.line = torch.randint(len(LINES), (count,), generator=gen)
        self.noise = torch.randn(count, generator=gen)

    def __len__(self):
        return len(self.line)

    def __getitem__(self, i):
        profile = torch.cumsum(torch.full((400,), 0.01) * (1 + self.weather[i, 0]), 0)  # distance run so far
        delay = self.weather[i].sum() + 0.3 * self.line[i] + 0.1 * self.noise[i] + 0.05 * profile[-1]
        return {"x": torch.cat([self.weather[i], profile[::100]]), "line": self.line[i], "delay": delay}


class PunctualityModel(L.LightningModule):
    def __init__(self, width=24, table_every=3):
        super().__init__()
        self.save_hyperparameters()
        self.line = torch.nn.Embedding(len(LINES), 4)
        self.net = torch.nn.Sequential(torch.nn.Linear(13, width), torch.nn.GELU(), torch.nn.Linear(width, 1))
        self.errors = []

    def forward(self, x, line):
        return self.net(torch.cat([x, self.line(line)], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.huber_loss(self(batch["x"], batch["line"]), batch["delay"])

    def validation_step(self, batch, batch_idx):
        error = (self(batch["x"], batch["line"]) - batch["delay"]).abs()
        table = torch.zeros(len(LINES)).index_add(0, batch["line"], error)
        self.errors.append(table)

    def on_validation_epoch_end(self):
        mine = torch.stack(self.errors).sum(0)
        self.errors.clear()
        if self.trainer.is_global_zero:
            log.info("epoch %d: %.3f minutes off here", self.current_epoch, mine.sum().item() / 60)
            if self.current_epoch % self.hparams.table_every == self.hparams.table_every - 1:
                board = self.all_gather(mine).sum(0)
                for name, value in sorted(zip(LINES, board.tolist()), key=lambda row: row[1]):
                    log.info("  %-5s %.2f", name, value)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=4e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(12)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=40,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        PunctualityModel(),
        DataLoader(Journeys(6000, 1), batch_size=16, shuffle=True),
        DataLoader(Journeys(180, 2), batch_size=20),
    )


if __name__ == "__main__":
    main()
