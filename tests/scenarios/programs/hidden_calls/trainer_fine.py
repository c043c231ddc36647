"""The HF Trainer with compute_metrics that reduces on every rank, and a callback of rank 0 that runs a child process."""

import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerControl, TrainerState


class Net(nn.Module):
    """A classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and logits."""
        logits = self.head(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Uploader(TrainerCallback):
    """Sends a checkpoint somewhere; takes a second or two."""

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """By the main process."""
        if state.is_world_process_zero:
            subprocess.run([sys.executable, "-c", "import time; time.sleep(1.5)"], check=True)


def metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy, and how many ranks computed it."""
    ranks = torch.ones(1)
    dist.all_reduce(ranks)
    return {
        "accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean()),
        "ranks": ranks.item(),
    }


def main() -> None:
    """Twenty steps, four evaluations."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=20,
        per_device_train_batch_size=2,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="no",
    )
    data = [{"x": torch.randn(6), "labels": torch.tensor(n % 3)} for n in range(200)]
    Trainer(
        Net(), arguments, train_dataset=data, eval_dataset=data[:26], compute_metrics=metrics, callbacks=[Uploader()]
    ).train()


if __name__ == "__main__":
    main()
