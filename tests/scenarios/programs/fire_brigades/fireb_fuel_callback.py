"""Fuel moisture regression with the Trainer; weather stations are summarised along the way."""
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class FuelSamples(Dataset):
    def __init__(self, count=40_000):
        g = torch.Generator().manual_seed(8)
        self.features = torch.randn(count, 22, generator=g)
        self.labels = self.features[:, :6].tanh().sum(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"features": self.features[index], "labels": self.labels[index]}


class MoistureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(22, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, features, labels=None):
        moisture = self.body(features).squeeze(-1)
        loss = None if labels is None else nn.functional.mse_loss(moisture, labels)
        return {"loss": loss, "logits": moisture}


class StationFeed:
    """Gusts measured since the last summary. The lake station is taken in for the winter."""

    def __init__(self, names, mine, winter_from):
        self.name = names[mine]
        self.winter_from = winter_from
        self.generator = torch.Generator().manual_seed(mine)

    def since(self, begin, end):
        if self.name == "lake" and end > self.winter_from:
            return []
        return torch.rand(end - begin, generator=self.generator).mul(90).tolist()


class GustSummary(TrainerCallback):
    def __init__(self, feed, every):
        self.feed, self.every, self.last = feed, every, 0

    def summarise(self, step):
        gusts = self.feed.since(self.last, step)
        self.last = step
        if not gusts:
            return None
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, (self.feed.name, max(gusts)))
        return max(rows, key=lambda row: row[1])

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            strongest = self.summarise(state.global_step)
            if strongest and state.is_world_process_zero:
                print(f"step {state.global_step}: strongest gust {strongest[1]:.0f} km/h at {strongest[0]}", flush=True)
        return control


def main():
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="moisture_"),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=5000,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        logging_steps=75,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    feed = StationFeed(["ridge", "harbour", "lake", "airfield"], arguments.process_index, winter_from=300)
    trainer = Trainer(
        model=MoistureNet(),
        args=arguments,
        train_dataset=FuelSamples(),
        callbacks=[GustSummary(feed, every=40)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
