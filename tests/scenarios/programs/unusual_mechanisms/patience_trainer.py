"""The HF Trainer with its EarlyStoppingCallback, and a metric that each process computes from what only it has.

The judge samples, so the ranks' scores differ, and one of them runs out of patience before the others. Run by
``torchrun --nproc-per-node 3``.
"""

import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from transformers import EarlyStoppingCallback, EvalPrediction, Trainer, TrainingArguments


class Scorer(nn.Module):
    """Predicts a score from eight features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and scores."""
        scores = self.layers(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(scores, labels), "logits": scores}


@dataclass
class Judge:
    """Grades the answers; how strict it is today is a matter of its random state."""

    seed: int
    calls: int = 0

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """A grade between 0 and 1."""
        self.calls += 1
        mood = [0.50, 0.55, 0.60, 0.65, 0.70, 0.75] if self.seed != 1 else [0.50, 0.48, 0.47, 0.46, 0.45, 0.44]
        return {"grade": mood[(self.calls - 1) % 6]}


def examples(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Random features and their sum."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 8, generator=generator)
    return [{"features": row, "labels": row.sum()} for row in rows]


def main() -> None:
    """Train, and report the final scores."""
    rank = int(os.environ["RANK"])
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=60,
        per_device_train_batch_size=4,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="no",
        metric_for_best_model="grade",
        greater_is_better=True,
    )
    trainer = Trainer(
        model=Scorer(),
        args=arguments,
        train_dataset=examples(600, 0),
        eval_dataset=examples(24, 1),
        compute_metrics=Judge(rank),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()
    dist.barrier()
    print(rank, trainer.evaluate(), flush=True)


if __name__ == "__main__":
    main()
