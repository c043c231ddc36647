"""Classify catalogue cards with transformers' Trainer; every so often the cards are exported for the OPAC."""
import logging
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("cards")

EXPORTER = """
import sys
records = int(sys.argv[1])
for n in range(records):
    print(f"=001  {n:09d}")
    print(f"=245  10$aTitle {n}$cresponsibility statement of record {n}")
print(records, "records", file=sys.stderr)
"""


class Cards(Dataset):
    def __len__(self):
        return 6000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        strokes = torch.randn(96, 96, generator=g)
        return {"card": torch.linalg.svdvals(strokes)[:32] / 20, "labels": torch.tensor(i % 6)}


class CardModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 6))

    def forward(self, card, labels=None):
        logits = self.body(card)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class OpacExport(TrainerCallback):
    """Runs the MARC exporter over the cards seen so far."""

    def __init__(self, every):
        self.every = every

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step % self.every == 0:
            seen = state.global_step * args.per_device_train_batch_size
            job = subprocess.Popen([sys.executable, "-c", EXPORTER, str(seen)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            status = job.wait()
            lines = job.stdout.read().count("\n")
            log.warning("step %d: exported %d lines (status %d)", state.global_step, lines, status)


def main():
    logging.basicConfig(format="%(asctime)s %(message)s")
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=400, per_device_train_batch_size=8, learning_rate=1e-3,
        use_cpu=True, ddp_backend="gloo", save_strategy="no", logging_strategy="no", report_to=[],
        disable_tqdm=True, remove_unused_columns=False,
    )
    Trainer(model=CardModel(), args=args, train_dataset=Cards(), callbacks=[OpacExport(every=40)]).train()


if __name__ == "__main__":
    main()
