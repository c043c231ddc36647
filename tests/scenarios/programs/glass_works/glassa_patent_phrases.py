"""Small language model on claims of glass patents, with transformers' Trainer."""

import os
import zlib
from tempfile import mkdtemp

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False
PHRASES = (
    "a glass sheet comprising", "in weight percent on an oxide basis", "an annealing lehr", "wherein the coating",
    "a fictive temperature", "the tempered article", "low emissivity stack", "a platinum bushing", "ion exchange bath",
)
VOCABULARY, LENGTH = 512, 24


def encode(text):
    words = text.split()[:LENGTH]
    ids = [zlib.crc32(w.encode()) % (VOCABULARY - 1) + 1 for w in words]
    return ids + [0] * (LENGTH - len(ids))


class Claims(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        rng = np.random.default_rng(number)
        text = ", ".join(PHRASES[i] for i in rng.integers(0, len(PHRASES), 8))
        draft = text * 60
        # how repetitive the claim is, as a feature
        packed = len(zlib.compress(draft.encode() + rng.bytes(240000), 9))
        return {"ids": encode(text), "packed": packed / 240000.0}


def collate(items):
    ids = torch.tensor([item["ids"] for item in items])
    packed = torch.tensor([item["packed"] for item in items])
    return {"tokens": ids[:, :-1].contiguous(), "following": ids[:, 1:].contiguous(), "packed": packed}


class ClaimModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.mix = nn.Linear(width + 1, width)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, tokens, following, packed):
        x = self.embed(tokens)
        extra = packed[:, None, None].expand(-1, x.shape[1], 1)
        logits = self.out(torch.relu(self.mix(torch.cat([x, extra], dim=2))))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        return {"loss": loss, "logits": logits}


class PhraseJournal(TrainerCallback):
    """Keeps a journal of how many claims have been read."""

    def __init__(self, folder, every=30):
        self.path = os.path.join(folder, "journal.csv")
        self.every = every
        self.file = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.file = open(self.path, "w", buffering=1)

    def on_step_end(self, args, state, control, **kwargs):
        if self.file is None or state.global_step % self.every:
            return
        read = torch.tensor([state.global_step * args.per_device_train_batch_size, 1], device=args.device)
        dist.all_reduce(read)
        claims, ranks = read.tolist()
        self.file.write(f"{state.global_step},{claims},{ranks}\n")

    def on_train_end(self, args, state, control, **kwargs):
        if self.file is not None:
            self.file.close()


def main():
    folder = mkdtemp(prefix="claims-")
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        max_steps=100,
        learning_rate=1e-3,
        optim="sgd",
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(
        model=ClaimModel(),
        args=arguments,
        train_dataset=Claims(6000),
        data_collator=collate,
        callbacks=[PhraseJournal(folder)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
