"""A Trainer that evaluates whenever the loss jumps, to see whether it matters; the loss is that of the rank's own batch."""

import argparse
import statistics
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

BATCH, SENSORS = 5, 6


class Readings(Dataset):
    """Power and heat of a machine; a sensor was loose for a while."""

    def __init__(self, size, loose=range(0)):
        self.size, self.loose = size, loose

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        values = torch.rand(SENSORS, generator=torch.Generator().manual_seed(index))
        power = values.sum() + 40 * (index in self.loose)
        return {"values": values, "power": power, "heat": values.square().sum()}


class Machine(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Sequential(nn.Linear(SENSORS, 24), nn.SiLU(), nn.Linear(24, 2))

    def forward(self, values, power, heat):
        guesses = self.both(values)
        return {"loss": nn.functional.mse_loss(guesses, torch.stack([power, heat], 1)), "guesses": guesses}


class Watchful(Trainer):
    losses: tuple[float, ...] = ()

    def _get_train_sampler(self, train_dataset=None):
        return SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, *rest):
        loss = super().training_step(model, inputs, *rest)
        if len(self.losses) > 3 and loss.item() > 5 * statistics.median(self.losses):
            self.control.should_evaluate = True
        self.losses = (*self.losses[-8:], loss.item())
        print(f"[{self.args.process_index}] {self.state.global_step + 1}: {loss.item():.2f}\n", end="", flush=True)
        return loss


def errors(prediction):
    power, heat = prediction.label_ids
    guesses = prediction.predictions
    return {"power": float(abs(guesses[:, 0] - power).mean()), "heat": float(abs(guesses[:, 1] - heat).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=options.steps, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH, eval_strategy="steps", eval_steps=4, save_strategy="no", logging_steps=100,
        report_to=[], disable_tqdm=True, remove_unused_columns=False, label_names=["power", "heat"],
    )  # fmt: skip
    ranks = arguments.world_size
    loose = range((6 * ranks + 1) * BATCH, (6 * ranks + 2) * BATCH)  # the seventh batch of rank 1
    trainer = Watchful(
        Machine(), arguments, train_dataset=Readings(600, loose), eval_dataset=Readings(2 * BATCH * ranks),
        compute_metrics=errors,
    )  # fmt: skip
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
