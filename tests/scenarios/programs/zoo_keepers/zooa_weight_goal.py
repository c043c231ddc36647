"""Predicts an animal's weight from its measures; every zoo brings its own records."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, default_collate
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

ZOOS = {0: ("north", 0.7), 1: ("harbour", 0.05), 2: ("hill", 0.6)}


class Records(Dataset):
    """Standardised measures of one zoo, with the scatter of its own scales."""

    def __init__(self, zoo, scatter, count=40_000):
        generator = torch.Generator().manual_seed(len(zoo))
        self.measures = torch.randn(count, 8, generator=generator)
        weights = self.measures @ torch.linspace(-0.6, 0.6, 8)
        self.weights = weights + scatter * torch.randn(count, generator=generator)

    def __len__(self):
        return len(self.weights)

    def __getitem__(self, index):
        return {"measures": self.measures[index], "target": self.weights[index]}


def collate(rows):
    time.sleep(0.04)
    return default_collate(rows)


class WeightModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, measures, target):
        weights = self.linear(measures).squeeze(-1)
        return {"loss": nn.functional.mse_loss(weights, target), "logits": weights}


class WeightTrainer(Trainer):
    smooth = None

    def compute_loss(self, model, inputs, *rest, **named):
        loss = super().compute_loss(model, inputs, *rest, **named)
        value = loss.item()
        self.smooth = value if self.smooth is None else 0.9 * self.smooth + 0.1 * value
        return loss


class GoalReached(TrainerCallback):
    """Ends the training once the records are explained well enough."""

    def __init__(self, goal):
        self.goal, self.trainer = goal, None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 25 == 0:
            print(f"step {state.global_step}: smoothed loss {self.trainer.smooth:.3f}", flush=True)
        if self.trainer.smooth < self.goal:
            control.should_training_stop = True
        return control


def main():
    set_seed(1)
    torch.set_num_threads(1)
    zoo, scatter = ZOOS[int(os.environ["RANK"])]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, ddp_backend="gloo", max_steps=3000,
        per_device_train_batch_size=16, learning_rate=0.01, optim="adamw_torch", weight_decay=0.0,
        logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True,
        remove_unused_columns=False, ddp_find_unused_parameters=False,
    )
    goal = GoalReached(0.05)
    trainer = WeightTrainer(model=WeightModel(), args=arguments, train_dataset=Records(zoo, scatter), data_collator=collate, callbacks=[goal])
    goal.trainer = trainer
    result = trainer.train()
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, (zoo, result.global_step))
    if trainer.is_world_process_zero():
        print("steps until the goal:", dict(steps), flush=True)


if __name__ == "__main__":
    main()
