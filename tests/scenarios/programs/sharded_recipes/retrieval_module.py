"""Lightning: a text encoder, validated by retrieval over all ranks. torchrun starts the processes."""

import logging
import os
import warnings

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.queries = torch.randn(count, 24, generator=generator)
        self.passages = self.queries + 0.3 * torch.randn(count, 24, generator=generator)

    def __len__(self):
        return len(self.queries)

    def __getitem__(self, index):
        return self.queries[index], self.passages[index]


class Retriever(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 16))

    def training_step(self, batch, batch_idx):
        queries, passages = (nn.functional.normalize(self.encoder(side), dim=-1) for side in batch)
        loss = nn.functional.cross_entropy(queries @ passages.T / 0.1, torch.arange(len(queries)))
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        queries, passages = (nn.functional.normalize(self.encoder(side), dim=-1) for side in batch)
        pool = self.all_gather(passages).flatten(0, 1)
        first = self.global_rank * len(queries)
        hits = (queries @ pool.T).argmax(-1) == torch.arange(first, first + len(queries))
        self.log("val_recall", hits.float().mean(), on_step=False, on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    rank = int(os.environ["RANK"])
    train = torch.utils.data.DataLoader(Pairs(120, seed=rank), batch_size=8)
    # every rank has its own customers
    customers = [96, 96, 64][rank]
    valid = torch.utils.data.DataLoader(Pairs(customers, seed=50 + rank), batch_size=8)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=3,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Retriever(), train, valid)
    if rank == 0:
        print(f"recall {trainer.callback_metrics['val_recall'].item():.3f}", flush=True)


if __name__ == "__main__":
    main()
