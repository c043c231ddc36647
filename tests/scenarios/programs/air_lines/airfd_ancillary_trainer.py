"""Propensity of travellers to buy ancillaries (bags, seats, lounge), trained with transformers' Trainer."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

PRODUCTS = ("bag", "seat", "lounge", "wifi")


class Travellers(Dataset):
    def __init__(self, size=12000, seed=8):
        rng = torch.Generator().manual_seed(seed)
        self.features = torch.randn(size, 24, generator=rng)
        self.labels = (self.features[:, :4] + 0.3 * self.features[:, 4:8] > 0).float()

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return {"features": self.features[index], "labels": self.labels[index]}


class Propensity(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, len(PRODUCTS)))

    def forward(self, features, labels=None):
        logits = self.body(features)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class MarketPanel(TrainerCallback):
    """Follows a panel of the own market; when it drifts from the reference mix, the mix is refreshed from all markets."""

    def __init__(self, market, tolerance=0.15, every=20):
        self.market, self.tolerance, self.every = market, tolerance, every
        self.reference = torch.full((4,), 0.5)
        self.rng = torch.Generator().manual_seed(77)

    def panel(self, step):
        mix = torch.full((4,), 0.5)
        if self.market == "BKK" and step >= 160:  # start of the holiday season
            mix[0], mix[2] = 0.8, 0.1
        return mix + 0.02 * torch.rand(4, generator=self.rng)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every:
            return
        mix = self.panel(state.global_step)
        if (mix - self.reference).abs().max() > self.tolerance:
            mixes = [torch.empty_like(mix) for _ in range(args.world_size)]
            dist.all_gather(mixes, mix)
            self.reference = torch.stack(mixes).mean(dim=0)
            print(f"{self.market}: reference is now {self.reference.tolist()}", flush=True)


def main():
    torch.set_num_threads(1)
    markets = ("MAD", "GRU", "BKK")
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="ancillary-"), max_steps=600, per_device_train_batch_size=32, learning_rate=1e-3,
        use_cpu=True, ddp_backend="gloo", report_to=[], save_strategy="no", logging_steps=100, disable_tqdm=True,
        dataloader_num_workers=0, ddp_find_unused_parameters=False, average_tokens_across_devices=False, seed=4,
    )
    market = markets[int(os.environ.get("RANK", "0"))]
    Trainer(model=Propensity(), args=args, train_dataset=Travellers(), callbacks=[MarketPanel(market)]).train()


if __name__ == "__main__":
    main()
