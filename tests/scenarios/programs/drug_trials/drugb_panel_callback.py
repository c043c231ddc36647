"""Fine-tunes a kinase affinity head with transformers' Trainer and reviews a reference panel now and then."""
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

KINASES = ("ABL1", "EGFR", "JAK2", "BRAF")


class AffinityHead(nn.Module):
    def __init__(self, bits=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(bits, 64), nn.ReLU(), nn.Linear(64, len(KINASES)))

    def forward(self, features=None, labels=None):
        logits = self.body(features)
        loss = F.smooth_l1_loss(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class Compounds(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        name = f"CHEMBL{100_000 + index * 37}"
        bits = torch.zeros(128)
        for shift in range(200):
            bits[(index * 31 + shift * (ord(name[-1]) + shift % 7)) % 128] += 0.05
        return {"features": bits, "labels": bits[:4] * 2 + bits[4:8]}


class PanelReview(TrainerCallback):
    """Writes the predictions for the reference compounds; the file is read by the med-chem dashboard."""

    def __init__(self, folder: Path, every: int):
        self.folder, self.every = folder, every
        self.reference = torch.stack([Compounds(9000)[i]["features"] for i in range(8800, 8816)])

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every or not state.is_world_process_zero:
            return control
        inner = getattr(model, "module", model)
        with torch.no_grad():
            predicted = inner(features=self.reference)["logits"].mean(0)
        report = {"step": state.global_step, **{k: round(float(v), 3) for k, v in zip(KINASES, predicted)}}
        (self.folder / "panel.jsonl").open("a").write(json.dumps(report) + "\n")
        print(report, flush=True)
        dist.barrier()  # the dashboard copy has to be complete before weights move on
        return control


def main():
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="kinase_"))
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=2000,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        seed=5,
    )
    trainer = Trainer(
        model=AffinityHead(),
        args=arguments,
        train_dataset=Compounds(8000),
        callbacks=[PanelReview(folder, every=120)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
