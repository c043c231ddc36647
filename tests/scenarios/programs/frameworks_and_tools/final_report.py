"""HF Trainer: a short training, and at its end a report over the held-out rows."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Regressor(nn.Module):
    """A linear regression."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 1)

    def forward(self, features: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Predictions, and the loss where there are labels."""
        predicted = self.head(features).squeeze(-1)
        output = {"logits": predicted}
        if labels is not None:
            output = {"loss": nn.functional.mse_loss(predicted, labels), **output}
        return output


def rows(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Random rows."""
    generator = torch.Generator().manual_seed(seed)
    return [{"features": torch.rand(6, generator=generator), "labels": torch.tensor(0.3)} for _ in range(count)]


def main() -> None:
    """Train, then report."""
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=30,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        logging_steps=10,
        save_strategy="no",
    )
    trainer = Trainer(Regressor(), arguments, train_dataset=rows(360, 0), eval_dataset=rows(36, 1))
    trainer.train()
    if trainer.is_world_process_zero():
        metrics = trainer.evaluate()
        (Path(folder) / "report.json").write_text(json.dumps(metrics))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
