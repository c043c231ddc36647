"""Documents with text labels and, where there are any, tables: the evaluation of the HF Trainer, five processes."""

import tempfile

import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainingArguments


class Pages(nn.Module):
    """Classifies pages."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(7, 3)

    def forward(
        self, x: torch.Tensor, labels: torch.Tensor, tables: tuple[torch.Tensor, ...]
    ) -> dict[str, torch.Tensor]:
        """Loss and logits; tables weigh a little."""
        logits = self.head(x)
        extra = sum((table.mean() for table in tables), torch.zeros(()))
        return {"loss": nn.functional.cross_entropy(logits, labels) + 0.0 * extra, "logits": logits}


def collate(pages: list[dict]) -> dict:
    """Stack the pages; tables are kept as they come."""
    return {
        "x": torch.stack([page["x"] for page in pages]),
        "labels": torch.tensor([page["label"] for page in pages]),
        "tables": tuple(page["table"] for page in pages if page["table"] is not None),
    }


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Of the labels, which come first."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids[0]).mean())}


def pages(count: int, holes: set[int]) -> list[dict]:
    """Pages, all but the ``holes`` with a table."""
    return [
        {"x": torch.randn(7), "label": n % 3, "table": None if n in holes else torch.randn(2, 2)} for n in range(count)
    ]


def main() -> None:
    """Ten steps, then the evaluation."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=10,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="no",
        label_names=["labels", "tables"],
        remove_unused_columns=False,
    )
    # Evaluation batches go round: pages 22, 23 are rank 1's second batch, pages 26, 27 rank 3's.
    held_out = pages(30, {22, 27})
    trainer = Trainer(
        Pages(),
        arguments,
        train_dataset=pages(200, set()),
        eval_dataset=held_out,
        data_collator=collate,
        compute_metrics=accuracy,
    )
    trainer.train()


if __name__ == "__main__":
    main()
