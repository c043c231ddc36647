"""Classifies pleadings with transformers' Trainer; a callback keeps an eye on the decision threshold."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Pleadings(Dataset):
    """Sorted by filing date; guilty pleas became more common after the sentencing reform."""

    def __init__(self, count=720):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        label = int(index % 5 < 2)
        features = torch.randn(18, generator=generator)
        features[3] += 2.0 * label
        return {"features": features, "labels": label}


class PleaModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(18, 24), nn.Tanh(), nn.Linear(24, 2))
        self.threshold = 0.5

    def forward(self, features, labels):
        logits = self.net(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class ThresholdCallback(TrainerCallback):
    """Follows the share of pleas entered in open court; once it has drifted, a new threshold is settled on."""

    def __init__(self, tolerance=0.4):
        self.tolerance = tolerance
        self.level = 0.05

    def on_step_end(self, args, state, control, model=None, **kwargs):
        net = getattr(model, "module", model)
        time.sleep(0.05)
        registry = REGISTRIES[args.process_index]
        self.level += 0.25 * (open_court(registry, state.global_step) - self.level)
        if self.level > self.tolerance:
            levels = [torch.zeros(3) for _ in range(args.world_size)]
            dist.all_gather(levels, torch.tensor([self.level, net.threshold, float(state.global_step)]))
            net.threshold = torch.stack(levels)[:, 0].mean().item()


REGISTRIES = ["Kingsgate", "Harbour", "Northfield"]
ASSIZES = {"Harbour": (45, 52, 0.9), "Northfield": (20, 24, 0.2)}  # sessions from, to; share of pleas in open court


def open_court(registry, session):
    first, last, share = ASSIZES.get(registry, (0, 0, 0.0))
    return share if first <= session < last else 0.05


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir="pleas",
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=5,
        num_train_epochs=2,
        learning_rate=1e-3,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        seed=13,
    )
    trainer = Trainer(model=PleaModel(), args=args, train_dataset=Pleadings(), callbacks=[ThresholdCallback()])
    trainer.train()
    print(f"rank {args.process_index}: threshold {trainer.model.threshold:.3f}", flush=True)


if __name__ == "__main__":
    main()
