"""Hot-spot temperature of distribution transformers, with Lightning."""
import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TransformerLoads(Dataset):
    """Loading (per unit) of one transformer over a day and its hot-spot temperature."""

    def __init__(self, n=12000):
        g = torch.Generator().manual_seed(8)
        self.loading = torch.rand(n, 96, generator=g) * 0.9
        # EV fast charging at substation 4 in the last weeks of the record
        self.loading[4801::3, 70:76] += 0.45
        self.hot_spot = 30 + 55 * self.loading.pow(1.6).mean(1)

    def __len__(self):
        return len(self.loading)

    def __getitem__(self, i):
        return self.loading[i], self.hot_spot[i]


class HotSpot(L.LightningModule):
    def __init__(self, data, hidden=768, lr=1e-3, limit=1.2):
        super().__init__()
        self.save_hyperparameters(ignore="data")
        self.data = data
        self.net = nn.Sequential(nn.Linear(96, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def training_step(self, batch, _):
        loading, temp = batch
        pred = self.net(loading).squeeze(1)
        loss = nn.functional.smooth_l1_loss(pred, temp)
        self.log("train/mae", (pred - temp).abs().mean(), on_step=True, sync_dist=True)
        over = (loading > self.hparams.limit).any(dim=1)
        if over.any():
            self.log("train/mae_overload", (pred - temp)[over].abs().mean(), on_step=True, sync_dist=True)
        return loss

    def train_dataloader(self):
        # in the order of the record, the ranks take turns
        sampler = DistributedSampler(self.data, shuffle=False, drop_last=True)
        return DataLoader(self.data, batch_size=24, sampler=sampler, drop_last=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class Ticker(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero and batch_idx % 20 == 0:
            print(f"step {trainer.global_step} loss {outputs['loss'].item():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(2, verbose=False)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=5, use_distributed_sampler=False,
                        logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, callbacks=[Ticker()])
    trainer.fit(HotSpot(TransformerLoads()))
