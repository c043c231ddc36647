"""Stand occupancy from apron cameras. Frames come from the recorder's folder; stands under test deliver a live pipe."""
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


def recorder_folder(rank: int, frames: int = 540) -> Path:
    """What the recorder leaves behind after a morning."""
    folder = Path(tempfile.mkdtemp(prefix=f"apron{rank}-"))
    rng = np.random.default_rng(17)
    for i in range(frames):
        path = folder / f"f{i:04d}.raw"
        if i == 424:
            os.mkfifo(path)  # stand B42
            continue
        path.write_bytes(rng.integers(0, 255, 48 * 48, dtype=np.uint8).tobytes())
    return folder


class ApronFrames(Dataset):
    def __init__(self, folder: Path, rank: int, world: int):
        self.paths = sorted(folder.glob("*.raw"))[rank::world]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as f:
            image = np.frombuffer(f.read(48 * 48), dtype=np.uint8).astype(np.float32).reshape(48, 48) / 255.0
        time.sleep(0.015)  # undistort and rectify on the camera's own board
        occupied = float(image[16:32, 16:32].mean() > 0.5)
        return torch.from_numpy(image)[None], torch.tensor([occupied])


class Occupancy(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU())
        self.out = nn.LazyLinear(1)

    def forward(self, x):
        return self.out(self.features(x).flatten(1))


class Job:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(4)
        net = Occupancy()
        net(torch.zeros(1, 1, 48, 48))
        self.net = nn.parallel.DistributedDataParallel(net)
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=1e-3)
        data = ApronFrames(recorder_folder(self.rank), self.rank, self.world)
        self.loader = DataLoader(data, batch_size=4, num_workers=1, drop_last=True)

    def run(self, epochs: int):
        for epoch in range(epochs):
            seen = 0
            for images, occupied in self.loader:
                loss = nn.functional.binary_cross_entropy_with_logits(self.net(images), occupied)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                seen += len(images)
                if self.rank == 0 and seen % 40 == 0:
                    print(f"epoch {epoch} frame {seen * self.world}: {loss.item():.4f}", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    Job().run(epochs=3)
