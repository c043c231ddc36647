"""Lightning: a character model of poems. Poems are of unequal length, and batches are drawn by length."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

ALPHABET = 30


class Poems(Dataset):
    def __init__(self, count=180):
        gen = torch.Generator().manual_seed(5)
        self.lengths = torch.randint(8, 60, (count,), generator=gen).tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.randint(0, ALPHABET, (self.lengths[i],), generator=torch.Generator().manual_seed(i))


class ByLength(Sampler):
    """Batches of at most ``budget`` characters, padding included, from this process's part of the poems."""

    def __init__(self, lengths, rank, world, budget=220):
        mine = sorted(range(rank, len(lengths), world), key=lengths.__getitem__)
        self.batches, batch = [], []
        for i in mine:
            if batch and lengths[i] * (len(batch) + 1) > budget:
                self.batches.append(batch)
                batch = []
            batch.append(i)
        self.batches.append(batch)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        yield from (self.batches[k] for k in torch.randperm(len(self.batches)).tolist())


class CharModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ALPHABET, 24)
        self.gru = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, ALPHABET)

    def training_step(self, batch, batch_idx):
        hidden, _ = self.gru(self.embed(batch[:, :-1]))
        loss = nn.functional.cross_entropy(self.out(hidden).flatten(0, 1), batch[:, 1:].flatten())
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)

    def train_dataloader(self):
        poems = Poems()
        sampler = ByLength(poems.lengths, self.global_rank, self.trainer.world_size)
        collate = lambda batch: nn.utils.rnn.pad_sequence(batch, batch_first=True)  # noqa: E731
        return DataLoader(poems, batch_sampler=sampler, collate_fn=collate)


if __name__ == "__main__":
    L.seed_everything(1)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=3,
        max_epochs=4,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(CharModel())
