"""Sorts mission log entries (nominal, anomaly, planning, handover) with a small BERT and transformers' Trainer."""
import argparse
import random

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

LABELS = ["nominal", "anomaly", "planning", "handover"]
VOCABULARY = 96
LENGTH = 24


class LogEntries(Dataset):
    """Entries as token ids; each label has a few tokens that are typical of it."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            label = rng.randrange(len(LABELS))
            ids = [2] + [rng.randrange(8, VOCABULARY) for _ in range(LENGTH - 2)] + [3]
            for _ in range(4):
                ids[rng.randrange(1, LENGTH - 1)] = 4 + label
            self.rows.append({"input_ids": ids, "attention_mask": [1] * LENGTH, "labels": label})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {key: torch.tensor(value) for key, value in self.rows[index].items()}


class ShiftReport(TrainerCallback):
    """Writes the figures of the shift report every so many steps."""

    def __init__(self, trainer, every, path):
        self.trainer = trainer
        self.every = every
        self.path = path

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0 and state.is_world_process_zero:
            figures = self.trainer.evaluate()
            with open(self.path, "a") as report:
                report.write(f"{state.global_step}\t{figures['eval_loss']:.4f}\n")


def build_model():
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=LENGTH + 8,
        num_labels=len(LABELS),
    )
    return BertForSequenceClassification(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--report-every", type=int, default=70)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    arguments = TrainingArguments(
        output_dir="mission_notes",
        per_device_train_batch_size=24,
        per_device_eval_batch_size=32,
        max_steps=options.steps,
        learning_rate=5e-4,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        use_cpu=True,
        ddp_backend="gloo",
        average_tokens_across_devices=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=build_model(),
        args=arguments,
        train_dataset=LogEntries(6000, seed=1),
        eval_dataset=LogEntries(900, seed=2),
    )
    trainer.add_callback(ShiftReport(trainer, options.report_every, "shift_report.tsv"))
    trainer.train()


if __name__ == "__main__":
    main()
