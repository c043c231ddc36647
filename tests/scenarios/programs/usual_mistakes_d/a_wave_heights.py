"""Wave heights from buoy readings: a regression with the Trainer, which reports batches that are far off."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Readings(Dataset):
    """Eight readings and the height one hour later, in metres."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.seen = torch.randn(size, 8, generator=generator)
        self.height = self.seen.mean(dim=1).abs()
        self.height[217] = 95.0  # typed without its decimal point

    def __len__(self) -> int:
        return len(self.seen)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"seen": self.seen[index], "labels": self.height[index]}


class Forecast(nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, seen: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss and the heights."""
        height = self.layers(seen).squeeze(1)
        return {"loss": nn.functional.mse_loss(height, labels), "logits": height}


class SpikeTrainer(Trainer):
    """Tells how a spike of the loss compares with the rest of the step."""

    ceiling = 50.0

    def compute_loss(self, model: nn.Module, inputs: dict, *args: object, **kwargs: object) -> torch.Tensor:
        """As usual, and a line for a spike."""
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        here = loss.detach()
        if here > self.ceiling:
            losses = self.accelerator.gather(here.reshape(1))
            print(f"step {self.state.global_step}: {here:.1f}, median of the step {losses.median():.1f}")
        return loss


def main() -> None:
    """Two epochs."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        learning_rate=1e-3,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    trainer = SpikeTrainer(model=Forecast(), args=arguments, train_dataset=Readings(720))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
