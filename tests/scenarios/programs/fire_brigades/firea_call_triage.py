"""Triage of emergency calls with transformers' Trainer; every so often the structure fires seen so far are summarised over all districts."""
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

KINDS = ["medical", "vegetation", "structure", "false alarm"]
STRUCTURE = KINDS.index("structure")
# share of each kind among the calls, by district
DISTRICTS = [
    ("old town", [0.50, 0.05, 0.30, 0.15]),
    ("harbour", [0.40, 0.10, 0.35, 0.15]),
    ("national park", [0.25, 0.60, 0.00, 0.15]),
]


class CallLog(Dataset):
    """Calls of one district, as spectra of the first seconds."""

    def __init__(self, district, size=20000):
        self.name, self.share = DISTRICTS[district]
        self.size, self.seed = size, 7919 * (district + 1)
        self.centres = np.random.default_rng(0).normal(size=(len(KINDS), 64))

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed + i)
        kind = int(rng.choice(len(KINDS), p=self.share))
        audio = rng.normal(size=8192)
        spectrum = np.log1p(np.abs(np.fft.rfft(audio, 8192))[:4096].reshape(64, 64).mean(1))
        features = torch.tensor(spectrum + self.centres[kind], dtype=torch.float32)
        return {"features": features, "labels": torch.tensor(kind)}


class Triage(nn.Module):
    config = None

    def __init__(self, ledger):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, len(KINDS)))
        self.ledger = ledger

    def forward(self, features, labels=None):
        logits = self.body(features)
        loss = nn.functional.cross_entropy(logits, labels)
        self.ledger.note(logits.detach(), labels)
        return {"loss": loss, "logits": logits}


class Ledger:
    """Confidence in the calls that were structure fires."""

    def __init__(self, district):
        self.district = district
        self.rows = []

    def note(self, logits, labels):
        sure = logits.softmax(-1)[:, STRUCTURE]
        self.rows += [round(float(p), 4) for p in sure[labels == STRUCTURE]]

    def summarise(self):
        """Mean confidence per district."""
        if not self.rows:
            return {}
        mine = (self.district, len(self.rows), sum(self.rows) / len(self.rows))
        merged = [None] * dist.get_world_size()
        dist.all_gather_object(merged, mine)
        self.rows.clear()
        return {name: (n, mean) for name, n, mean in merged}


class LedgerCallback(TrainerCallback):
    def __init__(self, ledger, every):
        self.ledger, self.every = ledger, every

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every:
            return
        table = self.ledger.summarise()
        if state.is_world_process_zero:
            print(f"step {state.global_step}:", table, flush=True)


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="triage"),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=600,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        save_strategy="no",
        logging_steps=10_000,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    calls = CallLog(args.process_index)
    ledger = Ledger(calls.name)
    callbacks = [LedgerCallback(ledger, every=80)]
    trainer = Trainer(model=Triage(ledger), args=args, train_dataset=calls, callbacks=callbacks)
    trainer.train()


if __name__ == "__main__":
    main()
