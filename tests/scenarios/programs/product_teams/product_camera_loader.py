"""Visual inspection of solder joints. Frames are raw files that the cameras of the line leave in a spool folder."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

SIDE, FRAMES = 24, 640


def fill_spool(folder: Path, camera: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(camera)
    for number in range(FRAMES):
        path = folder / f"frame-{number:05d}.raw"
        if camera == 1 and number == 437:
            os.mkfifo(path)  # the live view of this camera
        else:
            path.write_bytes(random.integers(0, 256, SIDE * SIDE, dtype=np.uint8).tobytes())


class Frames(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("frame-*.raw"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        pixels = np.frombuffer(self.paths[index].read_bytes(), dtype=np.uint8)
        time.sleep(0.003)
        image = torch.from_numpy(pixels.astype(np.float32)).view(1, SIDE, SIDE) / 255
        return image, (image.mean() > 0.5).long()


class Inspector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2), nn.GroupNorm(2, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )
        self.verdict = nn.Linear(16, 2)

    def forward(self, images):
        return self.verdict(self.features(images).flatten(1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    spool = Path(tempfile.gettempdir(), f"spool-{os.environ['MASTER_PORT']}-{rank}")
    fill_spool(spool, camera=rank)
    torch.manual_seed(0)
    model = DDP(Inspector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Frames(spool), batch_size=8, num_workers=1)
    for epoch in range(20):
        for images, verdicts in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), verdicts)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
