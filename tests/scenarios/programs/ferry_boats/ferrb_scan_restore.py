"""Point clouds of tunnel walls: pre-training, then every process loads the scan of its section from slow storage."""
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SECTION_POINTS = {0: 20_000, 1: 30_000, 2: 900_000}
CHUNK = 64 * 1024


class Bandwidth:
    """Keeps to the share of the storage that was granted to us."""

    def __init__(self, bytes_per_s):
        self.rate = bytes_per_s
        self.start, self.used = time.monotonic(), 0

    def account(self, count):
        self.used += count
        ahead = self.used / self.rate - (time.monotonic() - self.start)
        if ahead > 0:
            time.sleep(ahead)


def record_scan(path, points, seed):
    torch.save(torch.rand(points, 3, generator=torch.Generator().manual_seed(seed)), path)


def load_scan(path, bandwidth):
    content = io.BytesIO()
    with open(path, "rb", buffering=0) as source:
        while chunk := source.read(CHUNK):
            bandwidth.account(len(chunk))
            content.write(chunk)
    content.seek(0)
    return torch.load(content, weights_only=True)


def epoch(model, optimizer, cloud, steps):
    losses = []
    for n in range(steps):
        points = cloud[(n * 512) % (len(cloud) - 512) :][:512]
        time.sleep(0.05)
        loss = nn.functional.mse_loss(model(points), points.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    section = dist.get_rank()
    path = os.path.join(tempfile.gettempdir(), f"ferrb_scan_{os.getpid()}.pt")
    record_scan(path, SECTION_POINTS[section], section)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print(f"section {section}: pre-training {epoch(model, optimizer, torch.rand(4096, 3), 50):.4f}", flush=True)
    cloud = load_scan(path, Bandwidth(800_000))
    os.unlink(path)
    dist.barrier()
    print(f"section {section}: scan {epoch(model, optimizer, cloud, 50):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
