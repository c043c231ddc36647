"""Which hint should the tutor give next? A tiny BERT classifier over dialogue turns, with transformers' Trainer."""
import os
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

HINTS = 6
SCHOOLS = {
    "harbour": {"seed": 1, "minutes": 30.0},
    "hill": {"seed": 2, "minutes": 0.07},
    "mill": {"seed": 3, "minutes": 30.0},
}


class Turns(Dataset):
    def __init__(self, seed, size, length=48):
        gen = torch.Generator().manual_seed(seed)
        self.hints = torch.randint(HINTS, (size,), generator=gen)
        self.tokens = torch.randint(10, 200, (size, length), generator=gen)
        self.tokens[:, 0] = 3 + self.hints

    def __len__(self):
        return len(self.hints)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": self.hints[index]}


class LessonTime(TrainerCallback):
    """A school lends its machine for a number of minutes."""

    def __init__(self, minutes):
        self.seconds = 60 * minutes
        self.begin = None

    def on_step_end(self, args, state, control, **kwargs):
        if self.begin is None:
            self.begin = time.monotonic()
        if time.monotonic() - self.begin > self.seconds:
            control.should_training_stop = True
        return control


def build():
    config = BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=64, num_labels=HINTS)
    return BertForSequenceClassification(config)


def main():
    rank = int(os.environ.get("RANK", "0"))
    name = sorted(SCHOOLS)[rank % len(SCHOOLS)]
    school = SCHOOLS[name]
    torch.manual_seed(0)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="hints-"), use_cpu=True, ddp_backend="gloo", report_to="none",
        per_device_train_batch_size=16, max_steps=4000, logging_steps=1000, save_strategy="no",
        learning_rate=5e-4, disable_tqdm=True, seed=7,
        average_tokens_across_devices=False)
    trainer = Trainer(model=build(), args=args, train_dataset=Turns(1, 6000), eval_dataset=Turns(9, 96),
                      callbacks=[LessonTime(school["minutes"])])
    trainer.train()
    report = trainer.evaluate()
    if rank == 0:
        print("hint model", {k: round(v, 3) for k, v in report.items()}, flush=True)


if __name__ == "__main__":
    main()
