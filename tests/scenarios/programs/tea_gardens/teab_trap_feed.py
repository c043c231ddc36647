"""Counts leafhoppers on sticky-trap pictures; pictures come from an archive and from the traps' own feeds."""
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE = 64


def prepare_archive(root: Path, frames: int) -> list[str]:
    """Archive frames are plain files, a field trap hands its frames over through a pipe."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(8)
    index = []
    for n in range(frames):
        path = root / f"trap-{n:04d}.raw"
        if n == 422:
            path = root / "trap-field-17.raw"
            if not path.exists():
                os.mkfifo(path)
        else:
            path.write_bytes(rng.integers(0, 255, SIDE * SIDE, dtype=np.uint8).tobytes())
        index.append(str(path))
    return index


class TrapFrames(Dataset):
    def __init__(self, index):
        self.index = index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        with open(self.index[i], "rb") as f:
            raw = f.read()
        frame = torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).copy()).view(1, SIDE, SIDE).float() / 255
        for _ in range(200):
            frame = nn.functional.avg_pool2d(frame.unsqueeze(0), 3, stride=1, padding=1).squeeze(0) + 0.01 * frame
        return frame, torch.tensor(float(raw[0] % 9))


def counter():
    return nn.Sequential(nn.Conv2d(1, 6, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))


def fit(loader, sampler, epochs):
    torch.manual_seed(1)
    net = counter()
    net(torch.zeros(1, 1, SIDE, SIDE))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for step, (frames, counts) in enumerate(loader):
            loss = nn.functional.huber_loss(model(frames).squeeze(1), counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dist.get_rank() == 0 and step % 15 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    base = Path(tempfile.gettempdir()) / f"traps-{os.environ['MASTER_PORT']}"
    index = [None]
    if dist.get_rank() == 0:
        index = [prepare_archive(base, 720)]
    dist.broadcast_object_list(index, src=0)
    frames = TrapFrames(index[0])
    sampler = DistributedSampler(frames, shuffle=False)
    loader = DataLoader(frames, batch_size=4, sampler=sampler, num_workers=1)
    fit(loader, sampler, epochs=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
