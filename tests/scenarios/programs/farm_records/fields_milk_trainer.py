"""Somatic cell count class from daily milk yields of a herd (transformers' Trainer on CPU)."""
import dataclasses
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


@dataclasses.dataclass
class HerdConfig:
    days: int = 60
    cows: int = 6000
    hidden: int = 256
    drop: float = 6.0
    goal: float = 0.3
    every: int = 20


# what a sick cow loses per day [kg] in the herd of each site
SITES = (2.0, 14.0, 2.5)


class Lactations(Dataset):
    def __init__(self, cfg, seed=0):
        rng = np.random.default_rng(seed)
        curve = 30 * np.exp(-0.005 * np.arange(cfg.days))
        sick = rng.integers(0, 2, cfg.cows)
        drop = cfg.drop * sick[:, None] * rng.random((cfg.cows, cfg.days))
        self.x = torch.tensor((curve - drop + rng.normal(0, 2.5, (cfg.cows, cfg.days))) / 30, dtype=torch.float32)
        self.y = torch.tensor(sick)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"yields": self.x[i], "labels": self.y[i]}


class MastitisNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cfg.days, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU())
        self.head = nn.Linear(cfg.hidden, 2)

    def forward(self, yields, labels=None):
        logits = self.head(self.body(yields))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class HerdProbe(TrainerCallback):
    """Follows the loss on the herd of this site, and ends the training at the goal."""

    def __init__(self, cfg):
        self.cfg = cfg

    def on_train_begin(self, args, state, control, **kwargs):
        self.herd = Lactations(dataclasses.replace(self.cfg, cows=400, drop=SITES[args.process_index]), seed=7)

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.cfg.every:
            return control
        net = getattr(model, "module", model)
        loss = net(self.herd.x, self.herd.y)["loss"].item()
        print(f"site {args.process_index} step {state.global_step}: {loss:.3f}", flush=True)
        if loss < self.cfg.goal:
            control.should_training_stop = True
        return control


def main():
    cfg = HerdConfig()
    torch.manual_seed(2)
    model = MastitisNet(cfg)
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=16, num_train_epochs=8,
                             learning_rate=6e-4, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True)
    trainer = Trainer(model=model, args=args, train_dataset=Lactations(cfg), callbacks=[HerdProbe(cfg)])
    trainer.train()
    scores = trainer.evaluate(eval_dataset=Lactations(dataclasses.replace(cfg, cows=600), seed=1))
    if trainer.is_world_process_zero():
        print(scores)


if __name__ == "__main__":
    main()
