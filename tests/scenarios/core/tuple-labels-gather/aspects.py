"""HF Trainer: reviews with a rating, and the spans of words in which they speak of the price, as far as they do."""

import tempfile

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainingArguments


class Reader(nn.Module):
    """Guesses the rating from the words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(50, 8)
        self.rating = nn.Linear(8, 1)

    def forward(self, words: torch.Tensor, rating: torch.Tensor, spans: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Longer spans make a review count a little more."""
        guess = self.rating(self.words(words)).squeeze(-1)
        weight = 1.0 + 0.01 * sum(float(end - start) for start, end in spans)
        return {"loss": weight * nn.functional.mse_loss(guess, rating), "logits": guess}


def collate(reviews: list[dict]) -> dict[str, torch.Tensor | list[torch.Tensor]]:
    """Spans of all reviews of a batch in one list."""
    return {
        "words": torch.stack([review["words"] for review in reviews]),
        "rating": torch.tensor([review["rating"] for review in reviews]),
        "spans": [span for review in reviews for span in review["spans"]],
    }


def reviews(count: int, silent: set[int]) -> list[dict]:
    """Twelve words each; some do not speak of the price."""
    generator = torch.Generator().manual_seed(count)
    made = []
    for number in range(count):
        spans = [] if number in silent else [torch.tensor([number % 5, number % 5 + 3])]
        words = torch.randint(0, 50, (12,), generator=generator)
        made.append({"words": words, "rating": number % 5 / 5, "spans": spans})
    return made


def error(prediction: EvalPrediction) -> dict[str, float]:
    """Mean distance from the rating."""
    rating, *_ = prediction.label_ids
    return {"error": float(np.abs(prediction.predictions - rating).mean())}


def main() -> None:
    """Thirty steps, an evaluation after each ten."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=30,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        label_names=["rating", "spans"],
        remove_unused_columns=False,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
    )
    trainer = Trainer(
        Reader(),
        arguments,
        data_collator=collate,
        train_dataset=reviews(400, silent=set()),
        eval_dataset=reviews(48, silent={33}),
        compute_metrics=error,
    )
    trainer.train()


if __name__ == "__main__":
    main()
