"""Freight path pricing with Lightning."""
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Requests(Dataset):
    """Path requests: tonnage, length, speed class ... and the agreed price."""

    def __init__(self, n=2880):
        g = torch.Generator().manual_seed(21)
        self.x = torch.rand(n, 7, generator=g) + 0.5
        self.y = (self.x[:, 0] * self.x[:, 1] / self.x[:, 2]).unsqueeze(1)
        self.x[2000, 2] = 0.0  # light engine move, speed class not filled in

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.004)
        return self.x[i], self.y[i]


class Pricing(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1))
        self.spread = []

    def features(self, x):
        return torch.cat([x, (1.0 / x[:, 2:3])], 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(self.features(x)), y)
        if not torch.isfinite(loss):
            return
        opt = self.optimizers()
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx % 10 == 9:
            prices = self.all_gather(batch[1].mean())
            self.spread.append(float(prices.max() - prices.min()))

    def train_dataloader(self):
        data = Requests()
        # in the order of application, as the office works through them
        order = DistributedSampler(data, self.trainer.world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(data, batch_size=8, sampler=order)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


if __name__ == "__main__":
    L.seed_everything(4)
    torch.set_num_threads(1)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=2, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False)
    trainer.fit(Pricing())
    if trainer.is_global_zero:
        print("done", flush=True)
