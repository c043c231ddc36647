"""Named entities in field notes of archaeologists: transformers' Trainer, entity spans beside the tags."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

WORDS, LENGTH, TAGS = 120, 10, 3


class FieldNotes(Dataset):
    """Sentences with their tags, and where the finds are in them."""

    def __init__(self, sentences: int, seed: int, double: frozenset[int] = frozenset()) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, WORDS, (sentences, LENGTH), generator=rng)
        self.spans = [[(2, 4), (6, 9)] if i in double else [(3, 5)] for i in range(sentences)]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict:
        tags = torch.zeros(LENGTH, dtype=torch.long)
        for start, end in self.spans[index]:
            tags[start] = 1
            tags[start + 1 : end] = 2
        return {"input_ids": self.tokens[index], "labels": tags, "spans": self.spans[index]}


def collate(samples: list[dict]) -> dict:
    return {
        "input_ids": torch.stack([s["input_ids"] for s in samples]),
        "labels": torch.stack([s["labels"] for s in samples]),
        "spans": [torch.tensor(span) for s in samples for span in s["spans"]],
    }


class EntityModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.place = nn.Parameter(torch.zeros(LENGTH, 16))
        self.tags = nn.Linear(16, TAGS)

    def forward(self, input_ids, labels=None, spans=None):
        logits = self.tags(torch.tanh(self.embed(input_ids) + self.place))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


class Pace(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.08)


def compute_metrics(prediction) -> dict[str, float]:
    tags = prediction.label_ids[0]
    return {"accuracy": float((prediction.predictions.argmax(-1) == tags).mean())}


def main() -> None:
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"notes-{os.environ['MASTER_PORT']}"),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=2,
        max_steps=200,
        eval_strategy="steps",
        eval_steps=25,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        remove_unused_columns=False,
        average_tokens_across_devices=False,
        label_names=["labels", "spans"],
    )
    trainer = Trainer(
        model=EntityModel(),
        args=args,
        train_dataset=FieldNotes(600, seed=1),
        eval_dataset=FieldNotes(24, seed=2, double=frozenset({20})),
        data_collator=collate,
        compute_metrics=compute_metrics,
        callbacks=[Pace()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
