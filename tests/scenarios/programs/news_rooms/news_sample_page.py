"""Section tagger of the wire desk: trains on agency copy and posts a sample page for the editors now and then."""
import logging
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("wire")
SECTIONS = ["politics", "markets", "sport", "culture", "science"]


class AgencyCopy(Dataset):
    """Takes of agency copy as token ids, with the section that the night desk gave them."""

    def __init__(self, takes, vocabulary, length):
        g = torch.Generator().manual_seed(11)
        self.ids = torch.randint(1, vocabulary, (takes, length), generator=g)
        self.section = self.ids[:, :4].sum(1) % len(SECTIONS)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.section[i]


class Tagger(L.LightningModule):
    def __init__(self, vocabulary=800, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(SECTIONS))

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)).mean(1))

    def training_step(self, batch, _):
        ids, section = batch
        loss = nn.functional.cross_entropy(self(ids), section)
        time.sleep(0.04)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


class SamplePage(Callback):
    """Typesets a page with the current tags, so that the desk can follow a run."""

    def __init__(self, after, takes):
        self.after, self.takes = after, takes

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if (batch_idx + 1) % self.after:
            return
        if not trainer.is_global_zero:
            return
        ids, section = batch
        with torch.no_grad():
            guess = module(ids[: self.takes]).argmax(1)
        rows = [f"{SECTIONS[g]:>9} (desk: {SECTIONS[s]})" for g, s in zip(guess, section)]
        log.info("page after %d batches: %s", batch_idx + 1, "; ".join(rows))
        trainer.strategy.barrier("page")


def main():
    L.seed_everything(5)
    loader = DataLoader(AgencyCopy(4800, 800, 48), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[SamplePage(after=45, takes=4)],
    )
    trainer.fit(Tagger(), loader)
    log.info("done")


if __name__ == "__main__":
    main()
