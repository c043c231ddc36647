"""Library cards are sorted by subject; the main process draws up a page of examples after each saving."""

import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Cards(Dataset):
    """Ten marks on a card, and the subject."""

    def __init__(self, size: int) -> None:
        self.marks = torch.randn(size, 10, generator=torch.Generator().manual_seed(size))

    def __len__(self) -> int:
        return len(self.marks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"marks": self.marks[index], "labels": self.marks[index, :5].argmax()}


class Subjects(nn.Module):
    """Five subjects."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, marks: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and scores."""
        scores = self.layers(marks)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


class ExamplePage(TrainerCallback):
    """Writes a page beside the checkpoint; the converter takes its time."""

    def __init__(self, cards: Cards) -> None:
        self.cards = cards

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: object
    ) -> None:
        """On the main process, with the plain model."""
        if state.is_world_process_zero:
            with torch.no_grad():
                scores = model(self.cards.marks[:8], torch.zeros(8, dtype=torch.long))["logits"]
            time.sleep(2.5)
            page = "\n".join(str(subject) for subject in scores.argmax(dim=1).tolist())
            Path(args.output_dir, f"examples-{state.global_step}.txt").write_text(page)


def main() -> None:
    """Sixty steps, saved and evaluated every fifteen."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=60,
        logging_steps=15,
        eval_strategy="steps",
        eval_steps=15,
        save_steps=15,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    cards = Cards(50)
    trainer = Trainer(
        model=Subjects(),
        args=arguments,
        train_dataset=Cards(800),
        eval_dataset=cards,
        callbacks=[ExamplePage(cards)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
