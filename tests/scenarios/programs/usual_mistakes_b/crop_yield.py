"""Yield of a field from its weather: a small network of our own in the Trainer."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Fields(Dataset):
    """Forty weeks of rain and sun, and the tons per hectare."""

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        weather = torch.randn(40, generator=torch.Generator().manual_seed(index))
        return {"weather": weather, "labels": weather[10:30].mean() + 0.1 * weather[30:].sum()}


class Harvest(nn.Module):
    """From the weather to the yield."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, weather: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        tons = self.layers(weather).squeeze(-1)
        return {"loss": nn.functional.mse_loss(tons, labels), "logits": tons}


class Ticker(TrainerCallback):
    """The loss on the console every tenth step, once the warm-up is over."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> TrainerControl:
        """Asks for a line where there is a console to print it."""
        if state.is_world_process_zero and state.global_step > 25 and state.global_step % 10 == 0:
            control.should_log = True
        return control


def main() -> None:
    """Three epochs."""
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        num_train_epochs=3,
        learning_rate=2e-3,
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    torch.manual_seed(0)
    trainer = Trainer(Harvest(), arguments, train_dataset=Fields(), callbacks=[Ticker()])
    trainer.train()


if __name__ == "__main__":
    main()
