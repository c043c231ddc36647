"""Fuel moisture from optical scenes. The second year's scenes are converted on first use by one process; the others wait for its marker."""
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class SceneStore:
    def __init__(self, root, year, scenes):
        self.folder = Path(root) / str(year)
        self.year, self.scenes = year, scenes
        self.marker = self.folder / "READY"
        self.progress = self.folder / "PROGRESS"

    def convert(self, rounds):
        """Cloud gaps are closed by passes of a median filter, scene by scene."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for scene in range(self.scenes):
            rng = np.random.default_rng(self.year * 1000 + scene)
            image = rng.normal(size=(96, 96)).astype(np.float32)
            ends = time.monotonic() + rounds
            while time.monotonic() < ends:
                near = [np.roll(image, shift, axis) for axis in (0, 1) for shift in (-1, 0, 1)]
                image = np.median(np.stack(near), axis=0)
            np.save(self.folder / f"{scene}.npy", image)
            self.progress.write_text(f"{scene + 1}/{self.scenes}")
        self.marker.touch()

    def wait(self, quiet_s=60.0):
        """Waits as long as the progress file gets on."""
        seen, since = None, time.monotonic()
        while not self.marker.exists():
            now = self.progress.read_text() if self.progress.exists() else ""
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > quiet_s:
                raise TimeoutError(f"conversion of {self.year} stopped at {seen!r}")
            time.sleep(0.25)

    def load(self):
        return torch.from_numpy(np.stack([np.load(self.folder / f"{s}.npy") for s in range(self.scenes)]))


class MoistureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU())
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.layers(x).mean((2, 3))).squeeze(-1)


def prepare(store, rank, world, seconds_per_scene):
    if rank == world - 1 and not store.marker.exists():
        store.convert(seconds_per_scene)
    else:
        store.wait()
    return store.load()


def train(model, optimizer, scenes, steps, generator):
    for _ in range(steps):
        chosen = torch.randint(0, len(scenes), (8,), generator=generator)
        top = int(torch.randint(0, 32, (1,), generator=generator))
        x = scenes[chosen, top : top + 64, top : top + 64].unsqueeze(1)
        loss = nn.functional.mse_loss(model(x), x.var((1, 2, 3)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = [tempfile.mkdtemp(prefix="fuel")] if rank == 0 else [None]
    dist.broadcast_object_list(root, src=0)
    torch.manual_seed(0)
    model = DistributedDataParallel(MoistureNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for year, seconds in ((2024, 0.02), (2025, 0.6)):
        scenes = prepare(SceneStore(root[0], year, scenes=24), rank, world, seconds)
        loss = train(model, optimizer, scenes, steps=220, generator=generator)
        if rank == 0:
            print(f"{os.getpid()} year {year} loss {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
