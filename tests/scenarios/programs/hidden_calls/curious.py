"""The HF Trainer, with a callback that wants to see the log at once when the loss of a step looks odd."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerControl, TrainerState


class Net(nn.Module):
    """A line; keeps the last loss."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 1)
        self.last = 0.0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Squared error."""
        y = self.line(x).squeeze(-1)
        loss = nn.functional.mse_loss(y, labels)
        self.last = loss.item()
        return {"loss": loss, "logits": y}


class Curious(TrainerCallback):
    """Looks closer."""

    def __init__(self, net: Net) -> None:
        self.net = net

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> TrainerControl:
        """Ask for a line of the log."""
        if self.net.last > 1e4:
            control.should_log = True
        return control


def main() -> None:
    """Thirty steps; one sample is an outlier."""
    data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(400)]
    data[149]["labels"] = torch.tensor(5e3)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        max_steps=30,
        per_device_train_batch_size=2,
        train_sampling_strategy="sequential",
        logging_steps=50,
        save_strategy="no",
    )
    net = Net()
    Trainer(net, arguments, train_dataset=data, callbacks=[Curious(net)]).train()


if __name__ == "__main__":
    main()
