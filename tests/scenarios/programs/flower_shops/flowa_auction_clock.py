"""Predict the price at which a lot sells on the Dutch clock, with transformers' Trainer."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class LotHistory(Dataset):
    """Lots of one season: stem length, bloom stage, weekday, supply."""

    def __init__(self, lots=4000):
        g = torch.Generator().manual_seed(11)
        self.features = torch.rand(lots, 16, generator=g)
        self.price = self.features[:, :4].sum(1, keepdim=True) + 0.1 * torch.randn(lots, 1, generator=g)

    def __len__(self):
        return len(self.price)

    def __getitem__(self, i):
        torch.linalg.qr(torch.rand(128, 128))  # colour correction of the lot's photo
        return {"features": self.features[i], "labels": self.price[i]}


class ClockModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, features, labels=None):
        price = self.body(features)
        out = {"logits": price}
        if labels is not None:
            out["loss"] = nn.functional.mse_loss(price, labels)
        return out


class SpreadMonitor(TrainerCallback):
    """Keeps the latest bids of this auction hall and shares them with the other halls."""

    def __init__(self, hall, keep=32):
        self.hall, self.keep = hall, keep
        self.bids = []
        self.gen = torch.Generator().manual_seed(hall)

    def _collect(self, step):
        self.bids.append(float(torch.rand(1, generator=self.gen)) + 0.01 * step)
        if self.hall == 2 and step >= 40:
            self.bids.clear()  # the hall closes at eleven on Saturdays
        self.bids = self.bids[-self.keep:]

    def share(self):
        if not self.bids:
            return None
        low, high = min(self.bids), max(self.bids)
        mine = torch.tensor([low, high])
        halls = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(halls, mine)
        return torch.stack(halls)

    def on_step_end(self, args, state, control, **kwargs):
        self._collect(state.global_step)
        if state.global_step % 10 == 0:
            table = self.share()
            if table is not None and self.hall == 0:
                print(f"step {state.global_step} spread {(table[:, 1] - table[:, 0]).tolist()}", flush=True)


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="clock"),
        per_device_train_batch_size=8,
        max_steps=200,
        learning_rate=1e-3,
        use_cpu=True,
        ddp_backend="gloo",
        save_strategy="no",
        logging_steps=25,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    torch.manual_seed(0)
    monitor = SpreadMonitor(hall=int(os.environ.get("RANK", 0)))
    Trainer(model=ClockModel(), args=args, train_dataset=LotHistory(), callbacks=[monitor]).train()


if __name__ == "__main__":
    main()
