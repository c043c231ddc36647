"""HF Trainer: labels are a tuple of classes and boxes with the same structure everywhere, and evaluation sets end unevenly."""

import tempfile
import time

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainingArguments


class Detector(nn.Module):
    """A class and a box."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.box = nn.Linear(12, 5), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor, kind: torch.Tensor, boxes: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both losses."""
        logits, box = self.kind(x), self.box(x)
        known = boxes[..., 0] >= 0
        distance = (box[:, None] - boxes).square().sum(-1)
        loss = nn.functional.cross_entropy(logits, kind) + (distance * known).sum() / known.sum().clamp(min=1)
        return {"loss": loss, "logits": logits}


def collate(items: list[dict]) -> dict[str, torch.Tensor]:
    """Boxes up to the longest list of the batch, padded with -100."""
    boxes = nn.utils.rnn.pad_sequence([i["boxes"] for i in items], batch_first=True, padding_value=-100.0)
    return {"x": torch.stack([i["x"] for i in items]), "kind": torch.tensor([i["kind"] for i in items]), "boxes": boxes}


def measure(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy."""
    time.sleep(1.0)
    kinds, _ = prediction.label_ids
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == kinds))}


def main() -> None:
    """Thirty steps, an evaluation after each ten."""
    pictures = [{"x": torch.randn(12), "kind": n % 5, "boxes": torch.rand(1 + n % 4, 4)} for n in range(360)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=30,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        label_names=["kind", "boxes"],
        remove_unused_columns=False,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
    )
    trainer = Trainer(
        Detector(),
        arguments,
        data_collator=collate,
        train_dataset=pictures,
        eval_dataset=pictures[:47],
        compute_metrics=measure,
    )
    trainer.train()


if __name__ == "__main__":
    main()
