"""Chest X-rays read by several radiologists; a test set is predicted after training, with every reader's vote as a label.

``votes`` is a list with one tensor a reader, as many as the most-read image of the batch has. Two batches of a rank are read by
two, one batch of one rank by three.
"""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class XRays(Dataset):
    def __init__(self, readers):
        self.readers = readers

    def __len__(self):
        return len(self.readers)

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        image = torch.rand(1, 16, 16, generator=draw)
        return image, torch.randint(2, (self.readers[index],), generator=draw)


def collate(samples):
    most = max(len(votes) for _, votes in samples)
    padded = torch.stack([nn.functional.pad(votes, (0, most - len(votes)), value=-100) for _, votes in samples])
    return {"pixel_values": torch.stack([image for image, _ in samples]), "votes": list(padded.unbind(1))}


class Radiologist(nn.Module):
    main_input_name = "pixel_values"

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(32, 2)

    def forward(self, pixel_values, votes=None):
        logits = self.head(self.features(pixel_values).flatten(1))
        losses = [nn.functional.cross_entropy(logits, vote, ignore_index=-100) for vote in votes]
        return {"loss": torch.stack(losses).nanmean(), "logits": logits}


class Epochs(TrainerCallback):
    def on_epoch_end(self, arguments, state, control, **_):
        print(f"rank {arguments.process_index}: epoch {state.epoch}\n", end="", flush=True)


def agreement(prediction):
    return {"agreement": float((prediction.predictions.argmax(-1) == prediction.label_ids[0]).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--readers", type=int, default=3, help="of the image that was read most often")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, num_train_epochs=3, per_device_train_batch_size=4,
        per_device_eval_batch_size=2, save_strategy="no", logging_steps=100, report_to=[], disable_tqdm=True,
        remove_unused_columns=False, label_names=["votes"],
    )  # fmt: skip
    ranks = arguments.world_size
    test = [2] * (4 * ranks)
    test[2 * ranks + 2] = options.readers  # in the second batch of rank 1
    trainer = Trainer(
        Radiologist(), arguments, data_collator=collate, train_dataset=XRays([2] * 12 * ranks),
        compute_metrics=agreement, callbacks=[Epochs()],
    )  # fmt: skip
    trainer.train()
    metrics = trainer.predict(XRays(test)).metrics
    trainer.accelerator.wait_for_everyone()
    print(f"rank {arguments.process_index}: {metrics['test_agreement']:.3f}")
    trainer.end()


if __name__ == "__main__":
    main()
