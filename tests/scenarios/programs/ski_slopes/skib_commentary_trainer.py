"""Predicts a moment's excitement (0..10) from live commentary vectors, one broadcaster per process, with transformers' Trainer."""
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

BROADCASTERS = {"orf": 0.05, "srf": 2.5, "rai": 3.0}  # spread of the raters of each
DIM = 64


class Commentary(Dataset):
    def __init__(self, spread, seed, size=4000):
        gen = torch.Generator().manual_seed(seed)
        taste = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
        self.vectors = torch.randn(size, DIM, generator=gen)
        self.rating = self.vectors @ taste / DIM**0.5 * 3 + spread * torch.randn(size, generator=gen)

    def __len__(self):
        return len(self.vectors)

    def __getitem__(self, i):
        return {"vectors": self.vectors[i], "labels": self.rating[i]}


class Excitement(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(DIM, 1)

    def forward(self, vectors, labels=None):
        rating = self.linear(vectors).squeeze(-1)
        return {"loss": nn.functional.mse_loss(rating, labels), "logits": rating}


class RatingTrainer(Trainer):
    recent = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        value = outputs["loss"].item()
        self.recent = value if self.recent is None else 0.9 * self.recent + 0.1 * value
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class GoodEnough(TrainerCallback):
    """The producers need no better than one point of mean squared error."""

    def __init__(self, target, warmup):
        self.target, self.warmup, self.owner = target, warmup, None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= self.warmup and self.owner.recent < self.target:
            control.should_training_stop = True
        return control


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    name, spread = list(BROADCASTERS.items())[rank]
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="excite-"),
        max_steps=5000,
        per_device_train_batch_size=64,
        learning_rate=0.02,
        lr_scheduler_type="constant",
        use_cpu=True,
        ddp_backend="gloo",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        average_tokens_across_devices=False,
        seed=5,
    )
    stop = GoodEnough(target=1.0, warmup=250)
    trainer = RatingTrainer(model=Excitement(), args=args, train_dataset=Commentary(spread, seed=rank), callbacks=[stop])
    stop.owner = trainer
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        torch.save(trainer.accelerator.unwrap_model(trainer.model).state_dict(), os.path.join(args.output_dir, "excitement.pt"))
        print("saved", name, flush=True)


if __name__ == "__main__":
    main()
