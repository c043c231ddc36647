"""Sequence classification with the Trainer, and a callback that reports throughput over all processes."""

import time

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(1, 500, (count, 32), generator=g)
        self.labels = (self.ids.float().mean(1) > 250).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.score = nn.Embedding(500, 32), nn.Linear(32, 2)

    def forward(self, input_ids, labels=None):
        logits = self.score(self.words(input_ids).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Throughput(TrainerCallback):
    """Tokens per second."""

    def __init__(self):
        self.tokens, self.since = 0, time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.tokens += args.per_device_train_batch_size * 32

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero:
            return
        total = torch.tensor(float(self.tokens))
        dist.reduce(total, dst=0)
        speed = total.item() / (time.perf_counter() - self.since)
        print(f"step {state.global_step}: {speed:.0f} tokens/s", flush=True)


def main():
    args = TrainingArguments(
        output_dir="/tmp/notes-trainer",
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=8,
        max_steps=60,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(BagOfWords(), args, train_dataset=Reviews(960), eval_dataset=Reviews(96), callbacks=[Throughput()])
    trainer.train()


if __name__ == "__main__":
    main()
