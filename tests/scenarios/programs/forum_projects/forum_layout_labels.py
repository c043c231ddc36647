"""Document layout classifier with the Trainer: the page's class, and the boxes of the regions on it."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)


class Pages(Dataset):
    def __init__(self, count: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.pixels = torch.rand(count, 3, 16, 16, generator=generator)
        self.labels = torch.randint(5, (count,), generator=generator)
        self.regions = [1 + (index in (1, 2, 5, 9)) for index in range(count)]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        boxes = [torch.tensor([0.1 * k, 0.1 * k, 0.5, 0.5 + 0.01 * index]) for k in range(self.regions[index])]
        return {"pixels": self.pixels[index], "label": self.labels[index], "boxes": boxes}


def collate(samples):
    return {
        "pixels": torch.stack([sample["pixels"] for sample in samples]),
        "labels": torch.stack([sample["label"] for sample in samples]),
        "regions": [box for sample in samples for box in sample["boxes"]],
    }


class LayoutModel(nn.Module):
    def __init__(self, classes: int = 5):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.GELU(), nn.Conv2d(8, 16, 3, stride=2), nn.GELU(), nn.Flatten())
        self.classify = nn.Linear(16 * 9, classes)
        self.locate = nn.Linear(16 * 9, 4)

    def forward(self, pixels, labels=None, regions=None):
        features = self.body(pixels)
        logits = self.classify(features)
        if labels is None:
            return {"logits": logits}
        target = torch.stack(list(regions)).mean(0).expand(len(pixels), 4)
        loss = nn.functional.cross_entropy(logits, labels) + nn.functional.l1_loss(self.locate(features), target)
        return {"loss": loss, "logits": logits}


def accuracy(prediction):
    labels, _ = prediction.label_ids
    return {"accuracy": float((prediction.predictions.argmax(-1) == labels).mean())}


def main():
    folder = tempfile.mkdtemp(prefix=f"layout-{os.environ['MASTER_PORT']}-")
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        max_steps=4000,
        logging_steps=50,
        eval_strategy="steps",
        eval_steps=60,
        save_strategy="no",
        label_names=["labels", "regions"],
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    torch.manual_seed(args.seed)
    trainer = Trainer(
        model=LayoutModel(),
        args=args,
        data_collator=collate,
        compute_metrics=accuracy,
        train_dataset=Pages(1200, seed=3),
        eval_dataset=Pages(12, seed=4),
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
