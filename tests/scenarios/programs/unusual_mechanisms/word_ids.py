"""Tagging with the HF Trainer; ``label_names`` has an entry for the words that were split, which not every batch has.

Run by ``torchrun --nproc-per-node 3``.
"""

import os
import tempfile
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainingArguments

Item = dict[str, Any]


def collate(items: list[Item]) -> dict[str, Any]:
    """Stack tokens and labels; a tensor of the split words of each sentence that has any."""
    batch: dict[str, Any] = {key: torch.stack([item[key] for item in items]) for key in ("tokens", "labels")}
    batch["splits"] = [torch.tensor(item["splits"]) for item in items if item["splits"]]
    return batch


class Tagger(nn.Module):
    """A tag for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 4)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor, splits: Any = None) -> dict[str, torch.Tensor]:
        """Loss and logits."""
        logits = self.head(self.embed(tokens))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def sentence(number: int, split: bool) -> Item:
    """Six tokens."""
    tokens = torch.arange(number, number + 6) % 50
    return {"tokens": tokens, "labels": tokens % 4, "splits": [1, 4] if split else []}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Share of right tags."""
    labels = prediction.label_ids[0] if isinstance(prediction.label_ids, tuple) else prediction.label_ids
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == labels).mean())}


def main() -> None:
    """Evaluate every eighth step; of 24 sentences those of rank 1's last batch have no split words."""
    arguments = TrainingArguments(
        output_dir=os.path.join(tempfile.mkdtemp(), "out"), use_cpu=True, report_to=[], disable_tqdm=True,
        max_steps=40, eval_strategy="steps", eval_steps=8, save_strategy="no", label_names=["labels", "splits"],
        per_device_eval_batch_size=2, remove_unused_columns=False,
    )  # fmt: skip
    train = [sentence(n, split=n % 4 == 0) for n in range(400)]
    without = {20, 21}
    evaluation = [sentence(n, split=n not in without) for n in range(24)]
    Trainer(
        Tagger(), arguments, data_collator=collate, train_dataset=train, eval_dataset=evaluation,
        compute_metrics=accuracy,
    ).train()  # fmt: skip


if __name__ == "__main__":
    main()
