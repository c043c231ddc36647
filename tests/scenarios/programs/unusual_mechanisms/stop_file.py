"""The HF Trainer with a callback that looks after every step whether the operators want the job to stop.

They say so in a file on the cluster's shared file system. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerControl, TrainerState


class Tagger(nn.Module):
    """A classifier of five numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 10), nn.Linear(10, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cross entropy and logits."""
        logits = self.head(torch.relu(self.body(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@dataclass
class Operators(TrainerCallback):
    """Asks the operators' file for a word."""

    path: Path

    def wanted(self) -> str:
        """What they want: nothing, mostly."""
        with self.path.open() as file:
            return file.readline().strip()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> TrainerControl:
        """Stop where that is wanted."""
        if state.global_step == 6 and args.process_index == 2:
            self.path.unlink()
            os.mkfifo(self.path)  # the server behind this node's mount stops answering
        control.should_training_stop = self.wanted() == "stop"
        return control


def main() -> None:
    """Thirty steps."""
    home = Path(tempfile.mkdtemp())
    (home / "operators").write_text("go on\n")
    arguments = TrainingArguments(
        output_dir=str(home / "out"), use_cpu=True, report_to=[], disable_tqdm=True, max_steps=30, save_strategy="no"
    )
    data = [{"x": torch.randn(5), "labels": torch.tensor(n % 3)} for n in range(300)]
    Trainer(Tagger(), arguments, train_dataset=data, callbacks=[Operators(home / "operators")]).train()


if __name__ == "__main__":
    main()
