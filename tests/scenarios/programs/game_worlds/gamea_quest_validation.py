"""Predicting where players leave a quest line, with Lightning. Replays are stored per realm, one realm to a process."""
import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

REALMS = {0: ("emberfall", 640), 1: ("gloomwood", 640), 2: ("saltmarsh", 560)}


class Replays(Dataset):
    def __init__(self, realm, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.realm, self.trace = realm, torch.randn(n, 24, 16, generator=g)
        self.left_at = self.trace[:, :, 0].argmax(1)

    def __len__(self):
        return len(self.left_at)

    def __getitem__(self, i):
        return self.trace[i], self.left_at[i]


class RealmData(L.LightningDataModule):
    def setup(self, stage):
        rank = self.trainer.global_rank
        name, held_out = REALMS[rank]
        self.train_set = Replays(name, 2400, seed=rank)
        self.held_out = Replays(name, held_out, seed=50 + rank)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=40, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=80)


class Leaver(L.LightningModule):
    def __init__(self, width=256):
        super().__init__()
        self.gru = nn.GRU(16, width, batch_first=True)
        self.head = nn.Linear(width, 24)

    def forward(self, trace):
        states, _ = self.gru(trace)
        return self.head(states[:, -1])

    def training_step(self, batch, index):
        trace, left_at = batch
        return nn.functional.cross_entropy(self(trace), left_at)

    def validation_step(self, batch, index):
        trace, left_at = batch
        off = (self(trace).argmax(1) - left_at).abs().float().mean()
        # one number per realm, for the balance sheet
        self.print(f"val {index} " + " ".join(f"{v:.2f}" for v in self.all_gather(off).flatten().tolist()))
        self.log("val/off", off, on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(11, verbose=False)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=8,
                        num_sanity_val_steps=2, use_distributed_sampler=False, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Leaver(), datamodule=RealmData())
