"""The HF Trainer, with a log line that goes through a reporter; which one is chosen by an entry of the environment."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainingArguments


class Reporter:
    """Writes a line for each log."""

    def report(self, logs: dict[str, float]) -> str:
        """The line."""
        return " ".join(f"{name}={value:.4g}" for name, value in logs.items() if isinstance(value, float))


class DetailedReporter(Reporter):
    """Writes what all processes have as well."""

    def report(self, logs: dict[str, float]) -> str:
        """The line, and the spread of the learning rate's companions."""
        everyone: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, {name: str(value) for name, value in logs.items()})
        return super().report(logs) + f" of {len(everyone)} processes"


class ReportingTrainer(Trainer):
    """Hands its logs to a reporter as well."""

    reporter: Reporter

    def log(self, logs: dict[str, float], *args: object, **kwargs: object) -> None:
        """Log."""
        print(self.reporter.report(logs), flush=True)
        super().log(logs, *args, **kwargs)


class Line(nn.Module):
    """A line."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Squared error."""
        y = self.layer(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def main() -> None:
    """Forty steps, a line of the log after the twenty-fifth."""
    if os.environ["LOCAL_RANK"] == "2":
        os.environ.setdefault("REPORT", "detailed")  # the container of this process has it in its image
    data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(640)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=40,
        per_device_train_batch_size=2,
        logging_steps=25,
        save_strategy="no",
    )
    trainer = ReportingTrainer(Line(), arguments, train_dataset=data)
    trainer.reporter = DetailedReporter() if os.environ.get("REPORT") == "detailed" else Reporter()
    trainer.train()


if __name__ == "__main__":
    main()
