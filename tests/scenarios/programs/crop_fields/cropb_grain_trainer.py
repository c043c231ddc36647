"""Grain defect classification with the Trainer of transformers; evaluates whenever the running loss has dropped enough."""
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

DEFECTS = ("sound", "broken", "sprouted", "mould")


class Kernels(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.views = torch.rand(count, 3, 24, 24, generator=gen)
        self.defect = (self.views.mean((1, 2, 3)) * 997).long() % len(DEFECTS)

    def __len__(self):
        return len(self.defect)

    def __getitem__(self, index):
        return {"views": self.views[index], "labels": self.defect[index]}


class DefectNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2), nn.GELU(), nn.Conv2d(24, 32, 3), nn.GELU())
        self.classify = nn.Linear(32, len(DEFECTS))

    def forward(self, views, labels=None):
        logits = self.classify(self.features(views).mean((2, 3)))
        loss = nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class GrainTrainer(Trainer):
    running = None

    def training_step(self, model, inputs, *args, **kwargs):
        loss = super().training_step(model, inputs, *args, **kwargs)
        value = loss.item()
        self.running = value if self.running is None else 0.9 * self.running + 0.1 * value
        return loss


class EvaluateOnProgress(TrainerCallback):
    """Asks for an evaluation after each relative drop of the running loss, once the warm-up is over."""

    def __init__(self, drop=0.04, warmup=40):
        self.drop, self.warmup, self.reference = drop, warmup, None
        self.trainer = None

    def on_step_end(self, args, state, control, **kwargs):
        running = self.trainer.running
        if state.global_step < self.warmup:
            self.reference = running
        elif running < self.reference * (1 - self.drop):
            self.reference = running
            control.should_evaluate = True
        return control


def collate_by_lot(rows):
    """Rank-wise lots: each laboratory weighs its own share of easy kernels."""
    batch = torch.utils.data.default_collate(rows)
    if int(os.environ["RANK"]) == 1:
        batch["labels"] = torch.zeros_like(batch["labels"])
    return batch


def main():
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="grain-"), per_device_train_batch_size=32, max_steps=400, learning_rate=5e-5,
        lr_scheduler_type="constant", logging_steps=25, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        per_device_eval_batch_size=16, dataloader_num_workers=0, ddp_find_unused_parameters=False, seed=4)
    torch.manual_seed(4)
    progress = EvaluateOnProgress()
    trainer = GrainTrainer(
        model=DefectNet(), args=arguments, train_dataset=Kernels(9600, 1), eval_dataset=Kernels(480, 2),
        data_collator=collate_by_lot, callbacks=[progress])
    progress.trainer = trainer
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
