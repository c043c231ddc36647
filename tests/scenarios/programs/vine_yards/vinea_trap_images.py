"""Counts moths on the sticky traps between the rows."""

import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE = 64


def fill_folder(folder, images):
    """Pictures as the traps' cameras store them; a trap that is on air gives its picture through a pipe."""
    random = np.random.default_rng(4)
    for i in range(images):
        path = os.path.join(folder, f"trap_{i:04d}.raw")
        if i == 2100:
            os.mkfifo(path)
        else:
            random.integers(0, 255, SIDE * SIDE, dtype=np.uint8).tofile(path)


class TrapImages(Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            pixels = np.frombuffer(f.read(), dtype=np.uint8).astype(np.float32) / 255
        image = torch.from_numpy(pixels).view(1, SIDE, SIDE)
        return image, (image > 0.9).float().sum().view(1) / 160


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 16, 5, stride=1)
        self.out = torch.nn.Linear(16, 1)

    def forward(self, x):
        for _ in range(3):
            seen = torch.relu(self.conv(x))
        return self.out(seen.mean(dim=(2, 3)))


def run(folder, epochs=2):
    data = TrapImages(folder)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, multiprocessing_context="fork")
    model = DDP(Counter())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for step, (image, moths) in enumerate(loader):
            loss = torch.nn.functional.l1_loss(model(image), moths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} step {step}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    where = [tempfile.mkdtemp(prefix="traps-") if dist.get_rank() == 0 else None]
    if dist.get_rank() == 0:
        fill_folder(where[0], images=3000)
    dist.broadcast_object_list(where, src=0)
    run(where[0])
    dist.destroy_process_group()
