"""Control of mainspring torque; the shop's archive of curves is written by the first worker."""
import hashlib
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class Archive:
    def __init__(self, folder, chunks, rows=20000):
        self.folder, self.chunks, self.rows = Path(folder), chunks, rows

    def write(self):
        digest = hashlib.sha256()
        for n in range(self.chunks):
            started = time.monotonic()
            curves = torch.randn(self.rows, 16).sort(dim=1).values
            path = self.folder / f"curves_{n:03d}.pt"
            torch.save(curves, path)
            with open(path, "rb") as f:
                os.fsync(f.fileno())
                digest.update(f.read())
            time.sleep(max(0.0, 0.45 - (time.monotonic() - started)))  # share of the disk
            if n % 6 == 0:
                print(f"archive: {n + 1}/{self.chunks}", flush=True)
        return digest.hexdigest()


def train(model, optimizer, device, steps):
    for step in range(steps):
        torque = torch.rand(12, 30).cumsum(1)
        time.sleep(0.07)
        loss = model(torque.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    net = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1)).to(device)
    model = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, device, 30)
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            print("archive", Archive(folder, chunks=32).write()[:12], flush=True)
    dist.barrier(device_ids=[local])
    train(model, optimizer, device, 30)
    dist.barrier(device_ids=[local])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
