"""Reads the amount of scanned invoices; the Trainer gathers a dict of labels whose fields are those the batch has.

Not every invoice names a tax. The collator leaves the field out where no page of the batch has one, so the dict of one rank is
one tensor shorter. With ``--first`` this is so in the first of two batches of the evaluation: the gathers that
follow are shifted by one and pair with the wrong ones, and the ranks part for good when they train on.
"""

import argparse
import tempfile

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

PAGES, BATCH, FEATURES = 3, 4, 24


class Invoices(torch.utils.data.Dataset):
    def __init__(self, size, untaxed=()):
        draw = torch.Generator().manual_seed(size)
        self.pages = torch.rand(size, PAGES, FEATURES, generator=draw)
        self.amounts = 100 * torch.rand(size, generator=draw)
        self.vendors = torch.randint(20, (size,), generator=draw, dtype=torch.int32)
        self.untaxed = frozenset(untaxed)

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):
        tax = None if index in self.untaxed else 0.19 * self.amounts[index]
        return {"pages": self.pages[index], "amount": self.amounts[index], "tax": tax, "vendor": self.vendors[index]}


def to_batch(invoices):
    fields = {}
    for field in ("amount", "tax", "vendor"):
        values = [invoice[field] for invoice in invoices]
        if all(value is not None for value in values):
            fields[field] = torch.stack(values)
    return {"pages": torch.stack([invoice["pages"] for invoice in invoices]), "labels": fields}


class AmountReader(nn.Module):
    """Mean of the pages, two layers, one number."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 48), nn.GELU(), nn.Linear(48, 1))

    def forward(self, pages, labels=None):
        amounts = self.body(pages.mean(1)).squeeze(-1)
        return {"loss": nn.functional.l1_loss(amounts, labels["amount"]), "amounts": amounts}


class Progress(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"rank {arguments.process_index}: {state.global_step} steps\n", end="", flush=True)


def errors(prediction):
    return {"mean_error": float(np.abs(prediction.predictions - prediction.label_ids["amount"]).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", action="store_true")
    first = parser.parse_args().first
    torch.set_num_threads(1)
    torch.manual_seed(3)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, max_steps=8, per_device_train_batch_size=BATCH, report_to=[],
        per_device_eval_batch_size=BATCH, eval_strategy="steps", eval_steps=4, save_strategy="no", logging_steps=100,
        disable_tqdm=True, remove_unused_columns=False, label_names=["labels"],
    )  # fmt: skip
    size = arguments.world_size * BATCH * (2 if first else 1)
    trainer = Trainer(
        AmountReader(),
        arguments,
        data_collator=to_batch,
        train_dataset=Invoices(200),
        eval_dataset=Invoices(size, untaxed=range(BATCH, 2 * BATCH)),  # all pages of the second batch
        compute_metrics=errors,
        callbacks=[Progress()],
    )
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
