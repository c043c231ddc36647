"""Grade glazed doughnuts from the camera spool of each line (one line per rank)."""
import os
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

SIDE = 16
# what the camera driver keeps in the spool: finished frames, and on lines with the new driver the running stream
STREAMED = {1: "frame-0147.raw"}


def fill_spool(line, frames=400):
    """Takes the place of the camera driver on a developer's machine."""
    spool = pathlib.Path(tempfile.mkdtemp(prefix=f"line{line}-"))
    rng = np.random.default_rng(line)
    for k in range(frames):
        path = spool / f"frame-{k:04d}.raw"
        if path.name == STREAMED.get(line):
            os.mkfifo(path)
        else:
            rng.integers(0, 255, SIDE * SIDE, dtype=np.uint8).tofile(path)
    return spool


class Spool(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.raw"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as file:
            pixels = np.frombuffer(file.read(SIDE * SIDE), dtype=np.uint8)
        image = torch.from_numpy(pixels.astype(np.float32)).view(1, SIDE, SIDE) / 255
        image = image - torch.nn.functional.avg_pool2d(image[None], 5, 1, 2)[0] + 0.5  # light of the tunnel
        time.sleep(0.03)
        return image, (image.mean() > 0.5).long()


def glaze_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 7 * 7, 2),
    )


def run(line):
    torch.manual_seed(4)
    model = DDP(glaze_net())
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = DataLoader(Spool(fill_spool(line)), batch_size=4, num_workers=2, drop_last=True)
    for epoch in range(5):
        for step, (frames, grades) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(model(frames), grades)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % 20 == 0 and line == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run(dist.get_rank())
    dist.destroy_process_group()
