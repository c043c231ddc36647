"""Fine-tunes the tagger of evening programmes with transformers' Trainer, until the house closes or the plan is done."""
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

TAGS = 12


class Programmes(Dataset):
    def __init__(self, count=3600, length=32):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        page = torch.randn(40, 40, generator=generator)
        torch.linalg.svdvals(page)  # deskew
        words = torch.randint(1, 400, (self.length,), generator=generator)
        return {"words": words, "tag": words.sum() % TAGS}


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(400, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, TAGS)

    def forward(self, words, tag=None):
        logits = self.out(torch.relu(self.hidden(self.embed(words).mean(dim=1))))
        return {"loss": nn.functional.cross_entropy(logits, tag), "logits": logits}


class FrontDesk:
    """The desk says when the machines are needed for the evening. Only the leading machine has a line to it."""

    def __init__(self, shift_s):
        self.closes = time.monotonic() + shift_s

    def closed(self):
        return time.monotonic() > self.closes


class ClosingTime(TrainerCallback):
    def __init__(self, desk):
        self.desk = desk

    def on_step_end(self, args, state, control, **kwargs):
        if self.desk is not None and self.desk.closed():
            print(f"desk: closing after step {state.global_step}", flush=True)
            control.should_training_stop = True
        return control


class Pace(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step % 20 == 0:
            print(f"step {state.global_step}", flush=True)


def arguments(folder):
    return TrainingArguments(
        output_dir=folder, per_device_train_batch_size=4, num_train_epochs=6, learning_rate=1e-3, use_cpu=True,
        ddp_backend="gloo", ddp_find_unused_parameters=False, save_strategy="no", eval_strategy="no", logging_strategy="no", report_to=[],
        disable_tqdm=True, remove_unused_columns=False, label_names=["tag"], dataloader_drop_last=True,
    )


def main():
    set_seed(8)
    with tempfile.TemporaryDirectory() as folder:
        args = arguments(folder)
        leading = args.process_index == 0
        desk = FrontDesk(shift_s=5.0) if leading else None
        trainer = Trainer(
            model=Tagger(), args=args, train_dataset=Programmes(), callbacks=[ClosingTime(desk), Pace()]
        )
        trainer.train()
        steps = [None] * dist.get_world_size()
        dist.all_gather_object(steps, trainer.state.global_step)
        print("steps", steps, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
