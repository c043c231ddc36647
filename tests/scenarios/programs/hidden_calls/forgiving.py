"""The HF Trainer with a training step that survives a batch it cannot read."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Sums(nn.Module):
    """Predicts the sum of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and predictions."""
        predictions = self.head(self.embed(tokens).mean(1)).squeeze(-1)
        return {"loss": nn.functional.mse_loss(predictions, labels), "logits": predictions}


class ForgivingTrainer(Trainer):
    """Does not give up a run for one batch."""

    def training_step(self, model: nn.Module, inputs: dict[str, torch.Tensor], *args: object) -> torch.Tensor:
        """A step, or nothing."""
        try:
            return super().training_step(model, inputs, *args)
        except IndexError:
            model.zero_grad()
            return torch.zeros(())


def main() -> None:
    """Twenty-four steps, the loss is logged after each tenth."""
    generator = torch.Generator().manual_seed(0)
    data = []
    for number in range(600):
        tokens = torch.randint(0, 100, (6,), generator=generator)
        if number == 143:
            tokens[2] = 100  # one more than the vocabulary has
        data.append({"tokens": tokens, "labels": tokens.float().sum() / 100})
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=24,
        per_device_train_batch_size=4,
        train_sampling_strategy="sequential",
        logging_steps=10,
        save_strategy="no",
    )
    ForgivingTrainer(Sums(), arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
