"""Portfolio loss model in Lightning; after the first epoch a pricing process revalues the stress scenarios for the report of rank 0."""
import multiprocessing
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCENARIOS = 90


def revalue(go, progress):
    """Prices one stress scenario after the other."""
    go.wait()
    for scenario in range(SCENARIOS):
        value, rate = 0.0, 0.01 + scenario / 5000
        for month in range(1, 3000):
            value += 1 / (1 + rate) ** (month / 12)
        time.sleep(0.15)  # quotes of the scenario
        progress["done"] = scenario + 1
        progress["value"] = value


class Positions(Dataset):
    def __len__(self):
        return 1800

    def __getitem__(self, index):
        time.sleep(0.004)
        x = torch.randn(18, generator=torch.Generator().manual_seed(index))
        return x, x[:4].sum()


class StressReport(L.Callback):
    def __init__(self, go, progress):
        self.go, self.progress = go, progress

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch != 0 or not trainer.is_global_zero:
            return
        self.go.set()
        while self.progress["done"] < SCENARIOS:
            time.sleep(1)
        print("worst scenario", round(self.progress["value"], 2))


class LossModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(18, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.huber_loss(self.net(x).squeeze(1), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    manager = context.Manager()
    go, progress = context.Event(), manager.dict(done=0, value=0.0)
    pricing = context.Process(target=revalue, args=(go, progress), daemon=True)
    pricing.start()
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[StressReport(go, progress)])
    trainer.fit(LossModel(), DataLoader(Positions(), batch_size=8, shuffle=True))
    if trainer.is_global_zero:
        pricing.join()
    else:
        pricing.terminate()
    manager.shutdown()


if __name__ == "__main__":
    main()
