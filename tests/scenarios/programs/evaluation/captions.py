"""Training steps of a fraction of a second, and an evaluation whose beam search takes seconds a batch on every rank alike."""

import argparse
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

FEATURES, WORDS = 16, 40


class Pictures(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return {
            "features": torch.rand(FEATURES, generator=draw),
            "labels": torch.randint(WORDS, (), generator=draw),
        }


class Captioner(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, WORDS))
        self.seconds = seconds

    def forward(self, features, labels=None):
        logits = self.layers(features)
        if not self.training:
            logits = self.search(features, logits)
        time.sleep(0.2)  # what a step of a real model takes
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    def search(self, features, logits):
        """The best of many perturbed tries."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            tries = self.layers(features + 0.01 * torch.randn(64, *features.shape))
            logits = torch.maximum(logits, tries.amax(0))
        return logits


class Clock(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"[{arguments.process_index}] step {state.global_step}\n", end="", flush=True)

    def on_prediction_step(self, arguments, state, control, **_):
        print(f"[{arguments.process_index}] evaluating\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.5, help="of search for a batch of the evaluation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=20, per_device_train_batch_size=4, report_to=[],
        per_device_eval_batch_size=4, eval_strategy="steps", eval_steps=10, save_strategy="no", logging_steps=5,
        disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Trainer(
        Captioner(options.seconds), arguments, train_dataset=Pictures(400),
        eval_dataset=Pictures(3 * 4 * arguments.world_size), callbacks=[Clock()],
        compute_metrics=lambda prediction: {"right": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())},
    )  # fmt: skip
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
