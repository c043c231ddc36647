"""Digitised photographic plates: emulsion defects. Plates are fetched into a scratch area that jobs share."""
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SCRATCH = Path(tempfile.gettempdir()) / f"plates-{os.environ.get('TORCHELASTIC_RUN_ID', 'x')}"
FETCH = """
import sys, time, pathlib
lock, plates, pace = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
lock.open("x").write("prefetch")
for number in map(int, sys.argv[4:]):
    (plates / f"{number}.raw").write_bytes(bytes((number * i) % 251 for i in range(65536)))
    time.sleep(pace)
lock.unlink()
"""


@contextmanager
def archive_lock(path, poll=0.25):
    """One reader of the tape archive at a time, on file systems without flock."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            time.sleep(poll)
    try:
        yield
    finally:
        os.unlink(path)


class PlateStore:
    def __init__(self, folder, number):
        self.folder = folder / f"observatory-{number}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = self.folder / ".archive.lock"
        self.helper = None

    def prefetch(self, plates, pace):
        """In the background, with a process of its own."""
        arguments = [str(self.lock), str(self.folder), str(pace), *map(str, plates)]
        self.helper = subprocess.Popen([sys.executable, "-c", FETCH, *arguments], stderr=subprocess.DEVNULL)

    def end_prefetch(self, grace=3):
        try:
            self.helper.wait(grace)
        except subprocess.TimeoutExpired:
            self.helper.send_signal(signal.SIGTERM)
            self.helper.wait()

    def read(self, plate):
        path = self.folder / f"{plate}.raw"
        if not path.exists():
            with archive_lock(self.lock):
                path.write_bytes(bytes((plate * i) % 251 for i in range(65536)))
        pixels = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).float().view(16, 1, 64, 64)
        return pixels / 125 - 1


class DefectNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, width, 3), nn.SiLU(), nn.Conv2d(width, width, 3), nn.SiLU(), nn.Conv2d(width, 1, 3))

    def forward(self, x):
        return self.net(x).mean((1, 2, 3))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = PlateStore(SCRATCH, rank)
    model = DDP(DefectNet())
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    for series in range(6):
        first = 1000 * series + 1
        store.prefetch(range(first + 1000, first + 1008), pace=3.0 if (series, rank) == (2, 2) else 0.02)  # glass plates are slow
        for plate in range(first, first + 8):
            pixels = store.read(plate)
            for part in pixels.split(4):
                loss = (model(part) - part.std((1, 2, 3))).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        store.end_prefetch()
        dist.barrier()
        if rank == 0:
            print(f"series {series}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
