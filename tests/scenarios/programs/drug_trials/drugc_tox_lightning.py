"""Toxicity endpoints (Lightning): a shared trunk, one head for each assay of the panel."""
import os

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ASSAYS = ("AhR", "ER", "hERG", "p53", "mito")
# compound ids with a structural alert in the curated list
ALERTS = {311: "nitroaromatic", 2177: "quinone", 2903: "michael acceptor", 4466: "aldehyde"}
STRONG = {"quinone", "aldehyde"}


class ToxPanel(Dataset):
    def __init__(self, n=4800, features=256):
        self.n, self.features = n, features

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(77 + i)
        x = torch.zeros(self.features)
        for _ in range(2):
            x += torch.fft.rfft(torch.randn(65536, generator=g)).abs()[: self.features]
        y = (torch.rand(len(ASSAYS), generator=g) < 0.2).float()
        alert = float(ALERTS.get(i) in STRONG)
        return x / 256, y, torch.tensor(alert)


class ToxModule(L.LightningModule):
    def __init__(self, features=256, width=128, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.trunk = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleDict({a: nn.Linear(width, 1) for a in ASSAYS})
        self.alerted = []

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([self.heads[a](h) for a in ASSAYS], dim=1)

    def note_alerts(self, logits, mask):
        """Scores of compounds with an alert are kept for the safety report."""
        worst = torch.sigmoid(logits[mask]).amax().detach().reshape(1)
        self.alerted.append(self.all_gather(worst).max().item())

    def training_step(self, batch, batch_idx):
        x, y, alert = batch
        logits = self(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        if alert.any():
            self.note_alerts(logits, alert > 0)
        self.log("loss", loss)
        if batch_idx % 15 == 0:
            self.print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    panel = ToxPanel()
    order = DistributedSampler(panel, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]), shuffle=False)
    trainer.fit(ToxModule(), DataLoader(panel, batch_size=16, sampler=order))
