"""Sea-ice concentration from microwave radiometer swaths, trained at Dome station on three small GPUs."""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.backends.cudnn.enabled = False

CHANNELS, CLASSES, BATCH = 10, 6, 32


class IceHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(CHANNELS, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, CLASSES))

    def forward(self, pixels):
        return self.inner(pixels)


class Swaths:
    """Brightness temperatures of one orbit, cut into batches."""

    def __init__(self, seed, orbits):
        self.rng = np.random.default_rng(seed)
        self.orbits = orbits

    def __iter__(self):
        for _ in range(self.orbits):
            kelvin = self.rng.normal(180, 40, (BATCH, CHANNELS)).astype("float32")
            time.sleep(0.04)
            yield torch.from_numpy(kelvin / 300), torch.from_numpy(self.rng.integers(0, CLASSES, BATCH))


def train_epoch(model, optimizer, swaths, device):
    model.train()
    seen = torch.zeros((), device=device)
    for pixels, classes in swaths:
        logits = model(pixels.to(device))
        loss = nn.functional.cross_entropy(logits, classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(pixels)
    return int(seen.item())


def validate(model, swaths, device):
    model.eval()
    total = torch.zeros((), device=device)
    for pixels, _ in swaths:
        model(pixels.to(device)).detach()
        total += len(pixels)
    return int(total.item())


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local)
    model = DistributedDataParallel(IceHead().to(device), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(4):
        pixels = train_epoch(model, optimizer, Swaths(100 * epoch + rank, 20), device)
        print(f"rank {rank} epoch {epoch}: {pixels} pixels", flush=True)
        if epoch % 2 == 1 and rank == 0:
            checked = validate(model, Swaths(7, 6), device)
            print(f"validated on {checked} pixels", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
