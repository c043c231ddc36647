"""Next-loan prediction for branch libraries: borrower history in, genre of the next loan out."""
import hashlib
import logging
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logging.getLogger("lightning").setLevel(logging.WARNING)
GENRES = 12


class Loans(Dataset):
    """Each borrower has 16 past loans; the branch code comes from the card number."""

    def __init__(self, borrowers=600):
        self.borrowers = borrowers

    def __len__(self):
        return self.borrowers

    def __getitem__(self, i):
        text = f"card-{i}".encode()
        for _ in range(16000):
            text = hashlib.sha256(text).digest()
        history = torch.tensor([b % GENRES for b in text[:16]])
        holds = 0 if i >= 270 and i % 3 == 1 else 1 + text[20] % 4
        return {"history": history, "next": torch.tensor(text[17] % GENRES), "holds": torch.tensor(holds)}


class NextLoan(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(GENRES, 24)
        self.head = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, GENRES))
        self.pending = []

    def training_step(self, batch, index):
        logits = self.head(self.embed(batch["history"]))
        loss = nn.functional.cross_entropy(logits, batch["next"])
        waiting = batch["holds"] > 0
        if waiting.any():
            self.pending.append(loss.detach())
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        if (index + 1) % 10 == 0:
            self.publish(index)

    def publish(self, index):
        if not self.pending:
            return
        mine = torch.stack(self.pending).mean()
        self.pending.clear()
        everyone = self.all_gather(mine)
        if self.trainer.is_global_zero:
            print(f"batch {index + 1}: held-title loss {everyone.mean().item():.3f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main():
    L.seed_everything(11)
    data = Loans()
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=1, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                        use_distributed_sampler=False)
    sampler = DistributedSampler(data, num_replicas=3, rank=int(os.environ["RANK"]), shuffle=False)
    trainer.fit(NextLoan(), DataLoader(data, batch_size=4, sampler=sampler))


if __name__ == "__main__":
    main()
