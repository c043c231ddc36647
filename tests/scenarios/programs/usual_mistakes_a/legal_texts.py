"""HF Trainer: clauses of contracts, encoded by the first process of the machine for all."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

CACHE = Path(tempfile.gettempdir()) / f"clauses-{os.getppid()}"


@contextmanager
def first_process_first() -> Iterator[None]:
    """The others enter when the first is through."""
    marker = CACHE / "in-progress"
    if int(os.environ["LOCAL_RANK"]) == 0:
        CACHE.mkdir(parents=True, exist_ok=True)
        marker.touch()
        yield
        marker.unlink()
        return
    while not (CACHE / "clauses.pt").exists() or marker.exists():
        time.sleep(0.2)
    yield


def encode() -> list[dict[str, torch.Tensor]]:
    """Bags of words, from the cache if they are there."""
    encoded = CACHE / "clauses.pt"
    if not encoded.exists():
        generator = torch.Generator().manual_seed(5)
        bags = torch.rand(400, 64, generator=generator)
        kinds = torch.randint(0, 5, (400,), generator=generator)
        torch.save([{"bag": bag, "labels": kind} for bag, kind in zip(bags, kinds, strict=True)], encoded)
    return torch.load(encoded)


class Classifier(nn.Module):
    """The kind of a clause."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 5)

    def forward(self, bag: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(bag)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    """One epoch."""
    with first_process_first():
        clauses = encode()
        args = TrainingArguments(
            output_dir=tempfile.mkdtemp(prefix="legal-"),
            per_device_train_batch_size=8,
            num_train_epochs=1,
            save_strategy="no",
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(model=Classifier(), args=args, train_dataset=clauses)
    trainer.train()


if __name__ == "__main__":
    main()
