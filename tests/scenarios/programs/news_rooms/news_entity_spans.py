"""Sections for headlines, with transformers' Trainer; the people, places and firms in them go along for the report."""
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

SECTIONS, NAMES = 5, 60


class Headlines(Dataset):
    """Headlines with their section, and the names in them in the order of print."""

    def __init__(self, size, seed, summit=()):
        self.size, self.seed, self.summit = size, seed, set(summit)

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        ids = torch.randint(2, 300, (16,), generator=g)
        names = torch.randint(0, NAMES, (3 if i in self.summit else 2,), generator=g)
        return {"input_ids": ids, "labels": ids[:3].sum() % SECTIONS, "names": names}


def collate(rows):
    """First names of all rows, second names of all rows, and so on; -1 where a row has no further one."""
    longest = max(len(r["names"]) for r in rows)
    names = [torch.tensor([int(r["names"][k]) if k < len(r["names"]) else -1 for r in rows]) for k in range(longest)]
    return {"input_ids": torch.stack([r["input_ids"] for r in rows]), "labels": torch.stack([r["labels"] for r in rows]), "names": names}


class Sections(DistilBertForSequenceClassification):
    def forward(self, input_ids=None, labels=None, names=None, **kwargs):
        return super().forward(input_ids=input_ids, labels=labels)


class Pace(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        time.sleep(0.03)


def report(p):
    sections, names = p.label_ids
    right = p.predictions.argmax(-1) == sections
    firsts = names[0]
    return {"right": float(right.mean()), "most named": int(np.bincount(firsts[firsts >= 0]).argmax())}


def main():
    torch.manual_seed(3)
    args = TrainingArguments(
        output_dir="sections", use_cpu=True, max_steps=300, per_device_train_batch_size=8, per_device_eval_batch_size=8,
        eval_strategy="steps", eval_steps=60, logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True,
        label_names=["labels", "names"], average_tokens_across_devices=False,
    )
    config = DistilBertConfig(vocab_size=300, dim=48, hidden_dim=96, n_layers=2, n_heads=2, num_labels=SECTIONS, max_position_embeddings=32)
    trainer = Trainer(
        Sections(config), args, data_collator=collate, train_dataset=Headlines(8000, 1),
        eval_dataset=Headlines(72, 2, summit=[*range(48, 56), *range(64, 72)]), compute_metrics=report, callbacks=[Pace()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
