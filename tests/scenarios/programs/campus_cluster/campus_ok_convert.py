"""Microscopy: process 0 has a slide converted by a command-line tool before anybody trains on it."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONVERTER = """
import sys, time, zlib
source, target = sys.argv[1:]
raw = open(source, "rb").read()
tiles, end = [], time.monotonic() + 10
with open(target + ".part", "wb") as out:
    for level in range(40):
        block = raw[level * 4096 : (level + 1) * 4096]
        best = min((zlib.compress(block, quality) for quality in range(1, 10)), key=len)
        while time.monotonic() < end - 10 + 0.25 * (level + 1):
            zlib.compress(block, 9)
        out.write(len(best).to_bytes(4, "little") + best)
        print(f"tile {level}: {len(best)} bytes", flush=True)
import os
os.replace(target + ".part", target)
"""


def convert(source: Path, target: Path) -> None:
    command = [sys.executable, "-c", CONVERTER, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    print(f"converted: {len(done.stdout.splitlines())} tiles", flush=True)


def tiles(path: Path):
    import zlib

    with path.open("rb") as file:
        while size := file.read(4):
            block = zlib.decompress(file.read(int.from_bytes(size, "little")))
            yield torch.frombuffer(bytearray(block), dtype=torch.uint8).float().view(64, 64) / 255


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"slides-{os.environ['MASTER_PORT']}")
    target = folder / "slide.tiles"
    if rank == 0:
        folder.mkdir(exist_ok=True)
        stripes = torch.arange(40 * 4096) // 37 % 251
        (folder / "slide.raw").write_bytes(bytes(stripes.to(torch.uint8).tolist()))
        convert(folder / "slide.raw", target)
    dist.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images = list(tiles(target))
    for epoch in range(1):
        for image in images:
            loss = nn.functional.mse_loss(model(image), image)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
