"""Wax advice: glide model over slope profiles, trained with accelerate. Profiles are built once per venue and cached."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.file_baton import FileBaton

POINTS = 200
CALENDAR = [
    ["soelden", "levi", "beaver creek"],
    ["soelden", "levi", "beaver creek"],
    ["wengen", "levi", "soldeu"],
    ["wengen", "levi", "beaver creek"],
]
PRESTORED = {"soelden": 0.9, "levi": 0.4, "beaver creek": 1.1, "wengen": 0.7}

SURVEY = """
import os, sys
lock, target, points = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
heights = [0.0] * points
for sweep in range(10**9):
    i = sweep % points
    heights[i] += ((sweep * 2654435761) % 1000 - 500) / (1e6 + sweep)
import json
json.dump(heights, open(target, "w"))
os.remove(lock)
"""


class ProfileCache:
    def __init__(self, folder):
        self.folder = Path(folder)
        for venue, steepness in PRESTORED.items():
            profile = [steepness * ((i * 37) % 11 - 5) / 5 for i in range(POINTS)]
            (self.folder / f"{venue}.json").write_text(json.dumps(profile))

    def get(self, venue):
        path = self.folder / f"{venue}.json"
        if not path.exists():
            self._build(venue, path)
        return torch.tensor(json.loads(path.read_text()))

    def _build(self, venue, path):
        lock = self.folder / f"{venue}.lock"
        try:
            subprocess.run([sys.executable, "-c", SURVEY, str(lock), str(path), str(POINTS)], timeout=2.5, check=True)
            return
        except subprocess.TimeoutExpired:
            print(f"survey of {venue} takes long, using the coarse one", flush=True)
        baton = FileBaton(str(lock), 0.2)
        if baton.try_acquire():
            try:
                path.write_text(json.dumps([0.0] * POINTS))
            finally:
                baton.release()
        else:
            baton.wait()


def runs_of_day(profile, gen, n=256):
    temperature = -10 * torch.rand(n, 1, generator=gen)
    wetness = torch.rand(n, 1, generator=gen)
    shape = profile + 0.05 * torch.randn(n, POINTS, generator=gen)
    glide = shape.abs().mean(1, keepdim=True) * (1 - wetness) + 0.02 * temperature
    return torch.cat([shape, temperature / 10, wetness], 1), glide


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(8)
    torch.set_num_threads(1)
    cache = ProfileCache(tempfile.mkdtemp(prefix="profiles-"))
    model = nn.Sequential(nn.Linear(POINTS + 2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    gen = torch.Generator().manual_seed(accelerator.process_index)
    for week, venues in enumerate(CALENDAR):
        profile = cache.get(venues[accelerator.process_index])
        for _ in range(80):
            features, glide = runs_of_day(profile, gen)
            loss = nn.functional.smooth_l1_loss(model(features), glide)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"week {week}: {loss.item():.4f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
