"""Tags clauses of contracts (warranty, indemnity, venue, ...) with Lightning; each process reads its part of the archive."""

import time

import lightning as L
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

TAGS = 5
MIN_CHARACTERS = 200


class ContractArchive:
    """Catalogue of scanned contracts; some entries are cover letters with little text on them."""

    def __init__(self, size=180):
        self.size = size

    def length(self, number):
        return 90 if number % 12 == 4 else 900 + 7 * (number % 31)

    def clauses(self, number):
        generator = torch.Generator().manual_seed(number)
        for _ in range(4):
            tag = torch.randint(TAGS, (1,), generator=generator).item()
            vector = torch.randn(16, generator=generator)
            vector[tag] += 2.0
            yield vector, tag


class ClauseStream(IterableDataset):
    def __init__(self, archive):
        self.archive = archive

    def __iter__(self):
        first, stride = dist.get_rank(), dist.get_world_size()
        for number in range(first, self.archive.size, stride):
            if self.archive.length(number) < MIN_CHARACTERS:
                continue
            yield from self.archive.clauses(number)


class Tagger(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, TAGS))
        self.seen = torch.zeros(TAGS)

    def training_step(self, batch, index):
        vectors, tags = batch
        time.sleep(0.04)
        self.seen += torch.bincount(tags, minlength=TAGS)
        return F.cross_entropy(self.body(vectors), tags)

    def on_train_epoch_end(self):
        counts = self.all_gather(self.seen)
        if self.trainer.is_global_zero:
            print("clauses per tag:", counts.sum(0).long().tolist(), flush=True)
        self.seen.zero_()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    torch.set_num_threads(1)
    L.seed_everything(11)
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
    trainer.fit(Tagger(), DataLoader(ClauseStream(ContractArchive()), batch_size=4))


if __name__ == "__main__":
    main()
