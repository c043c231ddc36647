"""Hump yard: which classification track should a cut of wagons go to? Trained with the transformers Trainer."""
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

TRACKS = 16


class Cuts(Dataset):
    def __init__(self, count, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.features = torch.randn(count, 14, generator=gen)
        self.labels = (self.features[:, :4] > 0).long() @ torch.tensor([1, 2, 4, 8])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        rolling = sum(math.sqrt(k) for k in range(1500)) / 4e4  # rolling resistance over the hump, integrated
        return {"features": self.features[i] * rolling, "labels": self.labels[i]}


class TrackChooser(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.config = None
        self.layers = nn.Sequential(nn.Linear(14, width), nn.ReLU(), nn.Linear(width, TRACKS))

    def forward(self, features, labels=None):
        logits = self.layers(features)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class InterlockingExport(TrainerCallback):
    """The interlocking's computer picks up new weights from a folder."""

    def __init__(self, folder, every):
        self.folder, self.every = folder, every

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if not state.is_world_process_zero:
            return control
        if state.global_step % self.every == 0:
            self.publish(model, state.global_step)
        return control

    def publish(self, model, step):
        bare = getattr(model, "module", model)
        partial = os.path.join(self.folder, f"tracks-{step}.partial")
        torch.save(bare.state_dict(), partial)
        dist.barrier()
        os.rename(partial, partial.replace(".partial", ".pt"))
        print(f"published step {step} at {time.strftime('%H:%M:%S')}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    work = tempfile.mkdtemp(prefix="hump-")
    arguments = TrainingArguments(
        output_dir=work,
        per_device_train_batch_size=16,
        max_steps=1500,
        learning_rate=2e-3,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=9,
    )
    trainer = Trainer(
        model=TrackChooser(),
        args=arguments,
        train_dataset=Cuts(60000),
        callbacks=[InterlockingExport(work, every=400)],
    )
    trainer.train()
