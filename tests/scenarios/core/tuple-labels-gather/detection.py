"""Objects in small images with the Trainer; labels are one dict an image, as DETR's are, and a dict holds what was annotated.

The areas of the objects are missing from the annotation of one image, the last of the last rank.
"""

import argparse
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

QUERIES, CLASSES, BATCH = 3, 4, 2


class Images(Dataset):
    def __init__(self, size, without_area=()):
        self.size, self.without_area = size, set(without_area)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        annotation = {
            "image_id": torch.tensor([index]),
            "class_labels": torch.randint(CLASSES, (QUERIES,), generator=draw),
        }
        if index not in self.without_area:
            annotation["area"] = torch.rand(QUERIES, generator=draw)
        return {"pixel_values": torch.rand(3, 12, 12, generator=draw), "labels": annotation}


def collate(images):
    return {
        "pixel_values": torch.stack([image["pixel_values"] for image in images]),
        "labels": [image["labels"] for image in images],
    }


class Detector(nn.Module):
    main_input_name = "pixel_values"

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.classes = nn.Linear(200, QUERIES * CLASSES)

    def forward(self, pixel_values, labels=None):
        logits = self.classes(self.backbone(pixel_values)).view(-1, QUERIES, CLASSES)
        classes = torch.stack([annotation["class_labels"] for annotation in labels])
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), classes.flatten()), "logits": logits}


class Say(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print(f"rank {arguments.process_index}, step {state.global_step}\n", end="", flush=True)

    def on_evaluate(self, arguments, state, control, metrics, **_):
        print(f"rank {arguments.process_index}: {metrics['eval_recall']:.3f}\n", end="", flush=True)


def recall(evaluated: EvalPrediction):
    found = [guess.argmax(-1) for guess in np.concatenate(evaluated.predictions)]
    return {"recall": float(np.mean([len(set(guess)) / CLASSES for guess in found]))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unmeasured", action="store_true", help="an image has no areas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, num_train_epochs=2, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH, eval_strategy="epoch", save_strategy="no", logging_steps=100, report_to=[],
        disable_tqdm=True, remove_unused_columns=False, label_names=["labels"], eval_do_concat_batches=False,
    )  # fmt: skip
    size = 3 * BATCH * arguments.world_size
    trainer = Trainer(
        Detector(), arguments, data_collator=collate, compute_metrics=recall, callbacks=[Say()],
        train_dataset=Images(2 * size),
        eval_dataset=Images(size, [size - 1] if options.unmeasured else ()),
    )  # fmt: skip
    trainer.train()
    trainer.end()


if __name__ == "__main__":
    main()
