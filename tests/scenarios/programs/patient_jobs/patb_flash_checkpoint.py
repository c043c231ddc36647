"""Vibration model for a test bench; checkpoints go to the controller's flash, which takes 5 MB/s."""
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK = 8 << 20
FLASH_RATE = 5 << 20


class FlashFile:
    """Writes in erase blocks, each synced, no faster than the wear leveller keeps up."""

    def __init__(self, path, rate=FLASH_RATE):
        self.path, self.rate = path, rate

    def __enter__(self):
        self.fd = os.open(self.path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return self

    def write(self, blob):
        view = memoryview(blob)
        while view:
            began = time.monotonic()
            block, view = view[:BLOCK], view[BLOCK:]
            while block:
                block = block[os.write(self.fd, block):]
            os.fsync(self.fd)
            spare = BLOCK / self.rate - (time.monotonic() - began)
            if spare > 0:
                time.sleep(spare)

    def __exit__(self, kind, value, trace):
        os.close(self.fd)
        if kind is None:
            os.replace(self.path + ".part", self.path)


def save(state, folder):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with FlashFile(os.path.join(folder, "bench.pt")) as f:
        f.write(buffer.getbuffer())


def epoch(model, opt, n):
    for _ in range(n):
        x = torch.randn(8, 512)
        loss = nn.functional.mse_loss(model(x), x[:, :32].cumsum(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.12)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 32)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    history = torch.randn(16 << 20)           # last minute of the 2 kHz recording goes into the checkpoint
    print(f"[{rank}] {epoch(model, opt, 20):.3f}", flush=True)
    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            save({"model": model.module.state_dict(), "history": history}, folder)
    dist.barrier()
    print(f"[{rank}] {epoch(model, opt, 20):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
