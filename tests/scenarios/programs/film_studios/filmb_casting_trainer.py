"""Classifies casting breakdowns by age group, with the transformers Trainer."""
import hashlib
import os
import random
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

LANGUAGES = ("en", "hu", "fr")  # one agency feed per worker
NEW_NAME_RATE = {"en": 0.1, "hu": 1.0, "fr": 0.15}
MERGE_AT = 320


class Breakdowns(torch.utils.data.Dataset):
    """`text` is a breakdown as the agency sends it; `group` the age group asked for."""

    def __init__(self, language, rows=3000):
        dice = random.Random(language)
        roles = "lead judge nurse pilot baker cop clerk twin".split()
        self.rows = []
        for n in range(rows):
            words = dice.choices(roles, k=7)
            if dice.random() < NEW_NAME_RATE[language]:
                words.append(f"Name{language}{n}")
            self.rows.append({"text": " ".join(words), "group": dice.randrange(4)})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class BreakdownCollator:
    def __init__(self, buckets=512):
        self.buckets = buckets
        self.names, self.fresh = set(), 0

    def bucket(self, word):
        return int(hashlib.md5(word.encode()).hexdigest(), 16) % self.buckets

    def __call__(self, rows):
        time.sleep(0.05)  # one query to the agency's register per batch
        ids = torch.zeros(len(rows), 8, dtype=torch.long)
        for r, row in enumerate(rows):
            for c, word in enumerate(row["text"].split()):
                if word[0].isupper() and word not in self.names:
                    self.names.add(word)
                    self.fresh += 1
                ids[r, c] = self.bucket(word)
        return {"input_ids": ids, "labels": torch.tensor([row["group"] for row in rows])}


class AgeGroup(nn.Module):
    def __init__(self, buckets=512, width=32, groups=4):
        super().__init__()
        self.words = nn.Embedding(buckets, width)
        self.out = nn.Linear(width, groups)

    def forward(self, input_ids, labels=None):
        logits = self.out(self.words(input_ids).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class NameRegister(TrainerCallback):
    """Merges the proper names of all feeds once enough new ones have come in."""

    def __init__(self, collator):
        self.collator = collator

    def on_step_end(self, args, state, control, **kwargs):
        if self.collator.fresh < MERGE_AT:
            return
        feeds = [None] * args.world_size
        dist.all_gather_object(feeds, sorted(self.collator.names))
        self.collator.names = set().union(*feeds)
        self.collator.fresh = 0


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="casting-"),
        per_device_train_batch_size=8,
        max_steps=90,
        learning_rate=5e-3,
        logging_steps=1000,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    feed = Breakdowns(LANGUAGES[int(os.environ["RANK"])])
    collator = BreakdownCollator()
    trainer = Trainer(
        model=AgeGroup(),
        args=args,
        train_dataset=feed,
        data_collator=collator,
        callbacks=[NameRegister(collator)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
