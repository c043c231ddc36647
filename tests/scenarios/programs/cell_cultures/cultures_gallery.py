"""Fine-tune a small classifier of cell phenotypes, and keep a gallery of the worst wells beside each evaluation."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)


class Wells(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pixels = torch.randn(count, 48, generator=generator)
        self.phenotype = (self.pixels[:, :3].sum(1) > 0).long()

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        time.sleep(0.015)
        return {"pixel_values": self.pixels[index], "labels": self.phenotype[index]}


class Phenotyper(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 2))

    def forward(self, pixel_values, labels=None):
        logits = self.body(pixel_values)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class Gallery(TrainerCallback):
    """Keeps the wells with the largest loss of all shards, for the weekly meeting."""

    def __init__(self, every):
        self.every = every
        self.pages = {}

    def on_evaluate(self, args, state, control, metrics=None, model=None, **kwargs):
        if not state.is_world_process_zero or state.global_step % self.every:
            return
        local = {"step": state.global_step, "loss": metrics["eval_loss"], "host": os.uname().nodename}
        self.pages[state.global_step] = self.collect(local)

    def collect(self, local):
        entries = [None] * dist.get_world_size()
        dist.all_gather_object(entries, local)
        return sorted(entries, key=lambda entry: -entry["loss"])


def main():
    folder = os.path.join(tempfile.gettempdir(), f"phenotyper-{os.environ.get('MASTER_PORT', '0')}")
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=60,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=1e-3,
        eval_strategy="steps",
        eval_steps=4,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=7,
    )
    trainer = Trainer(
        model=Phenotyper(),
        args=arguments,
        train_dataset=Wells(720, seed=1),
        eval_dataset=Wells(24, seed=2),
        callbacks=[Gallery(every=8)],
    )
    trainer.train()
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
