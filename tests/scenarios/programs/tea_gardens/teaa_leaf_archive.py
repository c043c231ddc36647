"""Keeps the season's leaf images: trains an encoder, then every worker writes its part to the slow archive."""
import dataclasses
import hashlib
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class Archive:
    """A mounted tape cache that takes only so much per second."""

    folder: str
    rate: float = 3.0 * 2**20
    block: int = 2**19

    def put(self, name, data):
        digest, path = hashlib.sha256(), os.path.join(self.folder, name)
        with open(path, "wb") as f:
            for at in range(0, len(data), self.block):
                began = time.monotonic()
                part = data[at:at + self.block]
                f.write(part)
                f.flush()
                os.fsync(f.fileno())
                digest.update(part)
                time.sleep(max(0.0, len(part) / self.rate - (time.monotonic() - began)))
        return digest.hexdigest()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(64, 8)
        self.up = nn.Linear(8, 64)

    def forward(self, x):
        return self.up(torch.tanh(self.down(x)))


PARTS_MB = {0: 2, 1: 3, 2: 42}  # the withering room has the most cameras


def train(model, optimizer, steps, rng):
    for step in range(steps):
        x = torch.rand(48, 64, generator=rng)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = torch.Generator().manual_seed(rank)
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images = os.urandom(PARTS_MB[rank] * 2**20)
    folder = tempfile.mkdtemp(prefix="leaves-")
    try:
        train(model, optimizer, 50, rng)
        digest = Archive(folder).put(f"part-{rank}.bin", images)
        dist.barrier()
        loss = train(model, optimizer, 60, rng)
        print(f"[{rank}] {digest[:12]} loss {loss:.4f}", flush=True)
    finally:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
