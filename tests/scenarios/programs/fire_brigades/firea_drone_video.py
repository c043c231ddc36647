"""Hot spots in drone video with accelerate. Previews first, then full clips, which come from the depot in parts at the speed of its link."""
import hashlib
import time

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHASES = [
    {"name": "previews", "parts": 1, "batch": 16, "steps": 300},
    {"name": "full clips", "parts": 20, "batch": 24, "steps": 2},
    {"name": "previews again", "parts": 1, "batch": 16, "steps": 150},
]


class Depot:
    """Parts of a clip; the link gives a part of a full clip every 25 ms."""

    part_s = 0.025
    part_bytes = 40_000

    def parts(self, clip, count):
        rng = np.random.default_rng(clip)
        for number in range(count):
            if count > 1:
                time.sleep(self.part_s)
            yield rng.bytes(self.part_bytes)


class Clips(Dataset):
    def __init__(self, length, parts, offset):
        self.length, self.count, self.offset = length, parts, offset
        self.depot = Depot()

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        check, sums = hashlib.sha256(), np.zeros(1000)
        for part in self.depot.parts(self.offset + i, self.count):
            check.update(part)
            sums += np.frombuffer(part, np.uint8).reshape(40, 1000).mean(0)
        x = torch.tensor(sums / self.count / 128 - 1, dtype=torch.float32)
        return x, torch.tensor(float(check.digest()[0] > 127))


class HotSpot(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1000, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def run_phase(accelerator, model, optimizer, phase):
    clips = Clips(phase["batch"] * phase["steps"], phase["parts"], offset=100_000 * accelerator.process_index)
    loader = DataLoader(clips, batch_size=phase["batch"], num_workers=1, prefetch_factor=1)
    started, losses = time.monotonic(), []
    for x, hot in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), hot)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    mean = accelerator.reduce(torch.stack(losses).mean(), reduction="mean")
    accelerator.print(f"{phase['name']}: {mean.item():.4f} in {time.monotonic() - started:.1f} s", flush=True)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = HotSpot()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    for phase in PHASES:
        run_phase(accelerator, model, optimizer, phase)
    accelerator.end_training()


if __name__ == "__main__":
    main()
