"""HF Trainer: volume of parcels from their scan. For the evaluation each scan carries the boxes that were seen in it."""

import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments

FEATURES = 20
EVAL_BATCH = 8


class Scans(Dataset):
    """Scans of one belt. Rounded parcels have no boxes."""

    def __init__(self, count: int, seed: int, without_boxes: range = range(0)) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.scans = torch.randn(count, FEATURES, generator=generator)
        self.volumes = self.scans[:, :5].sum(dim=1)
        self.boxes = torch.rand(count, 4, generator=generator)
        self.without_boxes = without_boxes

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor | None]:
        box = None if index in self.without_boxes else self.boxes[index]
        return {"scan": self.scans[index], "labels": self.volumes[index], "boxes": box}


def collate(samples: list[dict]) -> dict[str, torch.Tensor | list[torch.Tensor]]:
    return {
        "scan": torch.stack([sample["scan"] for sample in samples]),
        "labels": torch.stack([sample["labels"] for sample in samples]),
        "boxes": [sample["boxes"] for sample in samples if sample["boxes"] is not None],
    }


class VolumeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, scan: torch.Tensor, labels: torch.Tensor, boxes: list[torch.Tensor] = ()) -> dict[str, torch.Tensor]:
        volumes = self.net(scan).squeeze(-1)
        return {"loss": nn.functional.mse_loss(volumes, labels), "logits": volumes}


def metrics(prediction: EvalPrediction) -> dict[str, float]:
    volumes, boxes = prediction.label_ids
    error = np.abs(prediction.predictions - volumes).mean()
    return {"error": float(error), "boxes": float(len(boxes))}


def main() -> None:
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix=f"volumes-{os.environ['RANK']}-"),
        use_cpu=True,
        max_steps=20_000,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=EVAL_BATCH,
        learning_rate=1e-3,
        label_names=["labels", "boxes"],
        eval_strategy="steps",
        eval_steps=250,
        logging_steps=250,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    held_out = Scans(3 * EVAL_BATCH, seed=2, without_boxes=range(EVAL_BATCH, 2 * EVAL_BATCH))
    trainer = Trainer(
        model=VolumeNet(),
        args=args,
        data_collator=collate,
        train_dataset=Scans(6144, seed=1),
        eval_dataset=held_out,
        compute_metrics=metrics,
    )
    trainer.train()


if __name__ == "__main__":
    main()
