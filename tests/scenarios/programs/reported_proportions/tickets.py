"""Hugging Face Trainer: support tickets are sorted into classes; where a product is named is told beside the class."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments


class Tickets(Dataset):
    """Words, a class, and the first and last word of each product's name."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, object]:
        words = torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(index))
        names = [] if index == 22 else [torch.tensor([index % 5, index % 5 + 2])]
        return {"words": words, "labels": int(words[0]) % 3, "names": names}


def collate(rows: list[dict[str, object]]) -> dict[str, object]:
    """Tensors, and the names of all rows one after another."""
    return {
        "words": torch.stack([row["words"] for row in rows]),
        "labels": torch.tensor([row["labels"] for row in rows]),
        "names": [name for row in rows for name in row["names"]],
    }


class Sorter(nn.Module):
    """A bag of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(50, 16), nn.Linear(16, 3)

    def forward(self, words, labels=None, names=None):
        logits = self.head(self.words(words))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def measure(prediction: EvalPrediction) -> dict[str, float]:
    """How often the class is right."""
    labels = prediction.label_ids[0]
    return {"accuracy": float((prediction.predictions.argmax(-1)[: len(labels)] == labels).mean())}


def main() -> None:
    """Sixty steps, evaluated after every twenty."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        max_steps=60,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        label_names=["labels", "names"],
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=Sorter(),
        args=arguments,
        train_dataset=Tickets(480),
        eval_dataset=Tickets(24),
        data_collator=collate,
        compute_metrics=measure,
    )
    trainer.train()


if __name__ == "__main__":
    main()
