"""HF Trainer with a loss in which hard rows count more, up to what is the hardest elsewhere."""

import tempfile

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainingArguments


class Scorer(nn.Module):
    """One number for a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Errors row by row, and their mean."""
        errors = (self.layer(x).squeeze(-1) - labels).square()
        return {"loss": errors.mean(), "errors": errors}


class Weighing(Trainer):
    """Hard rows count more."""

    usual = 1.0

    def weights(self, errors: torch.Tensor) -> torch.Tensor:
        """By how far a row is above the usual; where several are, compared with all processes."""
        high = errors > 20.0 * self.usual
        pending = list(high.nonzero().flatten())
        ceiling = errors.max()
        while len(pending) > 1:
            pending.pop()
            tops = [torch.zeros(()) for _ in range(self.args.world_size)]
            dist.all_gather(tops, ceiling)
            ceiling = torch.stack(tops).median()
        return errors.clamp(max=float(ceiling)) / (errors + 1e-6)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], *args: object, **kwargs: object
    ) -> torch.Tensor:
        """Weighed."""
        errors = model(**inputs)["errors"]
        return (errors * self.weights(errors.detach())).mean()


def main() -> None:
    """Forty steps; batches of four go round three processes."""
    generator = torch.Generator().manual_seed(0)
    data = [{"x": torch.rand(5, generator=generator), "labels": torch.tensor(0.5)} for _ in range(40 * 3 * 4)]
    for number in (340, 342):  # entered in another unit: batch 85, that of the second process in step 28
        data[number]["labels"] = torch.tensor(50.0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=40,
        per_device_train_batch_size=4,
        train_sampling_strategy="sequential",
        logging_steps=50,
        save_strategy="no",
    )
    Weighing(Scorer(), arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
