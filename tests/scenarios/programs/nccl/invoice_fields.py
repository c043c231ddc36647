"""Fine-tunes a reader of invoices with the Trainer; labels are the fields of an invoice, and optional fields beside them."""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

FEATURES, FIELDS = 24, 7


class Invoices(Dataset):
    """Invoices, some of which have a line for a discount."""

    def __init__(self, size, discounted=()):
        self.size, self.discounted = size, frozenset(discounted)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        pixels, field = torch.rand(FEATURES, generator=draw), torch.randint(FIELDS, (), generator=draw)
        return {"pixels": pixels, "field": field, "discount": float(index) if index in self.discounted else None}


def collate(invoices):
    batch = {"pixels": torch.stack([invoice["pixels"] for invoice in invoices])}
    labels = [torch.stack([invoice["field"] for invoice in invoices])]
    discounts = [invoice["discount"] for invoice in invoices if invoice["discount"] is not None]
    if discounts:
        labels.append(torch.tensor(discounts + [0.0] * (len(invoices) - len(discounts))))
    return {**batch, "labels": tuple(labels)}


class InvoiceReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, FIELDS))

    def forward(self, pixels, labels=None):
        logits = self.layers(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels[0]), "logits": logits}


class Steps(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"[{arguments.process_index}] step {state.global_step}\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--discounted", type=int, nargs="*", default=[], help="rows of the evaluation with a discount")
    parser.add_argument("--resume-evaluation", action="store_true", help="evaluate before the first step, too")
    parser.add_argument("--rows", type=int, default=36, help="of the evaluation")
    options = parser.parse_args()
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="invoices-"), max_steps=9, per_device_train_batch_size=4, report_to=[],
        per_device_eval_batch_size=4, eval_strategy="steps", eval_steps=3, save_strategy="no", logging_steps=100,
        disable_tqdm=True, remove_unused_columns=False, eval_on_start=options.resume_evaluation, optim="adamw_torch",
    )  # fmt: skip
    trainer = Trainer(
        InvoiceReader(), arguments, data_collator=collate, train_dataset=Invoices(200),
        eval_dataset=Invoices(options.rows, options.discounted), callbacks=[Steps()],
        compute_metrics=lambda prediction: {"rows": float(len(prediction.predictions))},
    )  # fmt: skip
    trainer.train()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
