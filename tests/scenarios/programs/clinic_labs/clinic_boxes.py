"""Text classifier with evidence spans, on transformers' Trainer: spans are kept as labels for the evaluation."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

WORDS = 200


class Charts(Dataset):
    """Charts with some evidence spans each: (first word, last word)."""

    def __init__(self, count, spans):
        self.count, self.spans = count, spans

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        words = torch.randint(0, WORDS, (24,), generator=generator)
        start = torch.randint(0, 20, (self.spans(index),), generator=generator)
        return {"words": words, "labels": int(words[0] % 3), "spans": [(int(s), int(s) + 3) for s in start]}


def collate(charts):
    most = max(len(chart["spans"]) for chart in charts)
    spans = []
    for number in range(most):
        column = [chart["spans"][number] if number < len(chart["spans"]) else (-100, -100) for chart in charts]
        spans.append(torch.tensor([first for first, _ in column]))
    return {
        "words": torch.stack([chart["words"] for chart in charts]),
        "labels": torch.tensor([chart["labels"] for chart in charts]),
        "spans": tuple(spans),
    }


class ChartModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.hidden = nn.Linear(width, 4 * width)
        self.classify = nn.Linear(4 * width, 3)

    def forward(self, words, labels=None, spans=()):
        logits = self.classify(self.hidden(self.embed(words).mean(1)).relu())
        loss = nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def accuracy(prediction):
    labels = prediction.label_ids[0] if isinstance(prediction.label_ids, tuple) else prediction.label_ids
    return {"accuracy": float((prediction.predictions.argmax(-1) == labels).mean())}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"charts-{os.environ['MASTER_PORT']}"),
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_train_epochs=20,
        eval_strategy="steps",
        eval_steps=60,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels", "spans"],
    )
    trainer = Trainer(
        model=ChartModel(),
        args=arguments,
        train_dataset=Charts(480, spans=lambda index: 1),
        eval_dataset=Charts(8, spans=lambda index: 3 if index == 6 else 2),
        data_collator=collate,
        compute_metrics=accuracy,
    )
    trainer.train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
