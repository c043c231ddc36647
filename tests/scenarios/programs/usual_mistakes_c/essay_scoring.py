"""Hugging Face Trainer with a model of its own: marks for essays; after each evaluation a few marks are shown."""

import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments


class Essays(Dataset):
    """Features of essays, and their marks."""

    def __init__(self, count: int, seed: int) -> None:
        self.features = torch.randn(count, 20, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"features": self.features[index], "labels": self.features[index].mean()}


class Marker(nn.Module):
    """Two layers and a mark."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        marks = self.layers(features).squeeze(1)
        return {"loss": (marks - labels).square().mean(), "marks": marks}


class EssayTrainer(Trainer):
    """Shows marks of the same six essays after each evaluation."""

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        metrics = super().evaluate(*args, **kwargs)
        if self.is_world_process_zero():
            shown = self.predict(Essays(6, seed=99), metric_key_prefix="shown")
            print(" ".join(f"{mark:.2f}" for mark in shown.predictions))
        return metrics


def score(prediction: EvalPrediction) -> dict[str, float]:
    """How far off the marks are."""
    return {"distance": float(np.abs(prediction.predictions - prediction.label_ids).mean())}


def main() -> None:
    """Forty steps, an evaluation every tenth."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=40,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    trainer = EssayTrainer(
        Marker(), arguments, train_dataset=Essays(600, 1), eval_dataset=Essays(60, 2), compute_metrics=score
    )
    trainer.train()


if __name__ == "__main__":
    main()
