"""Fine-tuning a sentence classifier with the Trainer inside a slot of the cluster that lasts a few seconds."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)


class SlotCallback(TrainerCallback):
    """Stops the training a little before the slot is over."""

    def __init__(self, seconds: float):
        self.ends = time.monotonic() + seconds

    def on_step_end(self, args, state, control, **kwargs):
        if time.monotonic() > self.ends:
            control.should_training_stop = True
        return control


class Sentences(Dataset):
    def __init__(self, count: int, vocab: int):
        generator = torch.Generator().manual_seed(count)
        self.ids = torch.randint(vocab, (count, 20), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "labels": ids.sum() % 3}


class Classifier(nn.Module):
    def __init__(self, vocab: int):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, 64)
        self.head = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, input_ids, labels=None):
        logits = self.head(self.embed(input_ids))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def used_so_far(rank: int) -> float:
    """Seconds of its slot that each machine had used up when the job came to it, from the scheduler's records."""
    records = {"node-a": 0.0, "node-b": 3.0, "node-c": 0.0}
    return list(records.values())[rank % len(records)]


def main():
    folder = tempfile.mkdtemp(prefix="slot-")
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=8,
        num_train_epochs=100,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    slot = SlotCallback(6.5 - used_so_far(args.process_index))
    vocab = 1000
    torch.manual_seed(0)
    trainer = Trainer(
        model=Classifier(vocab),
        args=args,
        train_dataset=Sentences(6000, vocab),
        eval_dataset=Sentences(120, vocab),
        callbacks=[slot],
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
