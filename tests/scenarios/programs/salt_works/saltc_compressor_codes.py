"""Fault classification for ammonia compressors of ice rinks, with accelerate."""
import math
import random
import time
from collections import Counter

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
CODES = ["normal", "oil-foaming", "short-cycling", "floodback"]
BATCH = 8


class CompressorRuns(Dataset):
    """Spectra of vibration and suction pressure with the fitter's code."""

    def __init__(self, runs=2400, bins=20):
        rng = random.Random(11)
        # floodback was recorded on the days of two curling tournaments
        tournament = set(range(240, 264)) | set(range(624, 632))
        self.rows = []
        for i in range(runs):
            code = "floodback" if i in tournament else CODES[rng.randrange(3)]
            base = CODES.index(code) + 1
            spectrum = [math.sin(base * b / 3) + rng.gauss(0, 0.2) for b in range(bins)]
            self.rows.append((spectrum, code))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    return {
        "spectrum": torch.tensor([r[0] for r in rows]),
        "label": torch.tensor([CODES.index(r[1]) for r in rows]),
        "codes": [r[1] for r in rows],
    }


class RareCodes:
    """Logits of the runs with codes that matter to the insurer."""

    def __init__(self, accelerator, wanted):
        self.accelerator, self.wanted, self.rows = accelerator, wanted, []

    def collect(self, batch, logits):
        if self.wanted in batch["codes"]:
            rows = self.accelerator.gather(logits.detach())
            self.rows.append(rows.cpu())

    def __len__(self):
        return sum(len(r) for r in self.rows)


def main():
    accelerator = Accelerator()
    loader = DataLoader(CompressorRuns(), batch_size=BATCH, collate_fn=collate)
    model = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, len(CODES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    criterion = nn.CrossEntropyLoss()
    rare, seen = RareCodes(accelerator, "floodback"), Counter()

    for step, batch in enumerate(loader):
        logits = model(batch["spectrum"])
        loss = criterion(logits, batch["label"])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        seen.update(batch["codes"])
        rare.collect(batch, logits)
        time.sleep(0.12)  # augmentation service
        if step % 4 == 0:
            accelerator.print(f"step {step} loss {loss.item():.3f} runs {seen.total()} rare {len(rare)}", flush=True)
            torch.cuda.synchronize()
    accelerator.wait_for_everyone()
    accelerator.print("codes", dict(seen))
    accelerator.end_training()


if __name__ == "__main__":
    main()
