"""Trains a drape simulator and keeps a swatch book of its pictures beside it."""
import contextlib
import os
import queue
import threading
import time
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

SHEETS = {"silk": 64, "wool": 10, "linen": 64}  # sheets in a fabric's book
EVERY, CHECK = 4, 12


class SwatchBook:
    """Binds pictures into a book, in the background."""

    def __init__(self, fabric, folder):
        self.fabric, self.folder = fabric, Path(folder)
        self.pending = queue.Queue()
        self.binder = threading.Thread(target=self._bind, daemon=True, name="binder")
        self.binder.start()

    def _bind(self):
        for sheet in range(SHEETS[self.fabric]):
            step, picture = self.pending.get()
            pixels = (picture.clamp(0, 1) * 255).to(torch.uint8)
            header = b"P5 %d %d 255\n" % (pixels.shape[1], pixels.shape[0])
            path = self.folder / f"{self.fabric}-{sheet:03d}.pgm"
            path.write_bytes(header + pixels.numpy().tobytes())
            self.pending.task_done()

    def add(self, step, picture):
        self.pending.put((step, picture))

    def settle(self):
        """All pictures so far are on disk."""
        self.pending.join()


@contextlib.contextmanager
def world():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    yield dist.get_rank(), torch.device("cuda", local)
    dist.destroy_process_group()


def drop_cloth(t):
    y, x = torch.meshgrid(torch.linspace(0, 3, 48), torch.linspace(0, 3, 48), indexing="ij")
    time.sleep(0.06)
    return 0.5 + 0.5 * (x * 2 + (y * 1.5 + t * 0.1).sin()).cos()


def main():
    with world() as (rank, device):
        fabric = list(SHEETS)[rank]
        book = SwatchBook(fabric, mkdtemp(prefix="swatches-"))
        drape = torch.nn.Sequential(
            torch.nn.Linear(48, 80), torch.nn.SiLU(), torch.nn.Linear(80, 48)
        )
        drape = DDP(drape.to(device), device_ids=[device.index])
        optimizer = torch.optim.Adam(drape.parameters(), lr=1e-3)
        for step in range(240):
            cloth = drop_cloth(step)
            fallen = drape(cloth.to(device))
            loss = (fallen - drop_cloth(step + 1).to(device)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % EVERY == 0:
                book.add(step, cloth)
            if step % CHECK == CHECK - 1:
                book.settle()
                print(f"{fabric}: {step + 1} steps, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
