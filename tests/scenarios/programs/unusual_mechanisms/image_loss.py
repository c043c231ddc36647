"""A Trainer subclass normalises the loss of images by their number on all ranks, in batches that have images.

Run by ``torchrun --nproc-per-node 4``.
"""

import os
import tempfile
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

Item = dict[str, torch.Tensor]


class Mixed(Dataset[Item]):
    """Texts (a vector); some come with an image (another vector, zeros if there is none)."""

    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: int) -> Item:
        # Samplers deal round robin in batches of two: step 9, rank 2.
        image = torch.ones(4) if index == (9 * 4 + 2) * 2 else torch.zeros(4)
        return {"text": torch.full((4,), index % 5 / 5), "image": image, "labels": torch.tensor(index % 5 / 5)}


class TwoTowers(nn.Module):
    """One tower for texts, one for images."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.image = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, text: torch.Tensor, image: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Errors of each sample, of both towers."""
        of_text = (self.text(text).squeeze(-1) - labels).square()
        of_image = (self.image(image).squeeze(-1) - labels).square()
        return {"loss": of_text.mean(), "of_image": of_image}


class MultimodalTrainer(Trainer):
    """Adds the images' part to the loss."""

    def compute_loss(self, model: nn.Module, inputs: Item, return_outputs: bool = False, **kwargs: Any) -> Any:
        """Text loss plus image loss."""
        outputs = model(**inputs)
        loss = outputs["loss"] + 0.0 * outputs["of_image"].sum()
        has_image = inputs["image"].abs().sum(1) > 0
        if has_image.any():
            everybodys = self.accelerator.gather(has_image.sum().view(1))
            loss = loss + (outputs["of_image"] * has_image).sum() / everybodys.sum()
        return (loss, outputs) if return_outputs else loss


def main() -> None:
    """Forty steps in the order of the data."""
    arguments = TrainingArguments(
        output_dir=os.path.join(tempfile.mkdtemp(), "out"), use_cpu=True, report_to=[], disable_tqdm=True,
        per_device_train_batch_size=2, max_steps=40, save_strategy="no", train_sampling_strategy="sequential",
    )  # fmt: skip
    MultimodalTrainer(TwoTowers(), arguments, train_dataset=Mixed()).train()


if __name__ == "__main__":
    main()
