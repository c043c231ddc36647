"""Hugging Face Trainer: support tickets are sorted into classes; each names one product."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments


class Tickets(Dataset):
    """Words, a class, and the first and last word of the product's name."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(index))
        return {"words": words, "labels": words[0] % 3, "name": torch.tensor([index % 5, index % 5 + 2])}


class Sorter(nn.Module):
    """A bag of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(50, 16), nn.Linear(16, 3)

    def forward(self, words, labels=None, name=None):
        logits = self.head(self.words(words))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def measure(prediction: EvalPrediction) -> dict[str, float]:
    """How often the class is right."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids[0]).mean())}


def main() -> None:
    """Forty steps, evaluated after every twenty."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        max_steps=40,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        label_names=["labels", "name"],
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=Sorter(),
        args=arguments,
        train_dataset=Tickets(320),
        eval_dataset=Tickets(50),
        compute_metrics=measure,
    )
    trainer.train()


if __name__ == "__main__":
    main()
