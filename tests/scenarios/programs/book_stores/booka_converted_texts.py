"""Fine-tune on plain texts that are converted from EPUB on first use; whoever comes first converts."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from accelerate import Accelerator

CONVERTER = r'''
import os, pathlib, sys, time, zlib
target = pathlib.Path(sys.argv[1])
lock = target.with_suffix(".converting")
lock.mkdir()
part = target.with_suffix(".part")
with open(part, "wb") as out:
    for chapter in range(60):
        text = b"".join(b"%d " % (n * chapter % 1009) for n in range(120000))
        out.write(zlib.compress(text, 9))
        out.flush()
        os.utime(lock)
        time.sleep(0.16)
part.rename(target)
lock.rmdir()
'''


def start_conversion(path):
    return subprocess.Popen([sys.executable, "-c", CONVERTER, str(path)])


def converted(path, stale_after=300.0):
    """Waits until the text is there. A converter that is at work touches its lock."""
    lock = path.with_suffix(".converting")
    while not path.exists():
        try:
            age = time.time() - lock.stat().st_mtime
        except FileNotFoundError:
            age = 0.0
        if age > stale_after:
            raise TimeoutError(f"{path}: no progress for {age:.0f} s")
        time.sleep(0.1)
    return path.read_bytes()


def passages(data, rank):
    raw = torch.frombuffer(bytearray(data[rank * 4096:rank * 4096 + 64 * 64]), dtype=torch.uint8)
    return raw.float().reshape(64, 64) / 255


def main():
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    model = torch.nn.Linear(64, 64)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))

    def fit(x, count):
        for _ in range(count):
            torch.linalg.svdvals(torch.randn(220, 220))
            loss = (model(x) - x).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"loss {loss.item():.4f}")

    fit(torch.rand(64, 64), 250)
    path = pathlib.Path(tempfile.gettempdir()) / f"novel-{os.getppid()}-{rank}.txt"
    job = None
    if rank == 1:
        job = start_conversion(path)
        data = converted(path)
    else:
        data = bytes(range(256)) * 200
    fit(passages(data, rank), 250)
    if job is not None:
        print("converter status", job.wait(), flush=True)
        path.unlink()
    accelerator.wait_for_everyone()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
