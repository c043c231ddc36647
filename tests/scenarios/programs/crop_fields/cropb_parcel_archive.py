"""Converts the parcels of the land register into arrays on first use; all ranks share the folder of converted ones."""
import contextlib
import io
import os
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MUNICIPALITIES = 64


class Register:
    """The archive as the surveyor's office delivers it: one zip per municipality."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def deliver(self):
        for number in range(MUNICIPALITIES):
            values = np.random.default_rng(number).random((1500, 18), dtype=np.float32)
            buffer = io.BytesIO()
            np.save(buffer, values)
            with zipfile.ZipFile(self.folder / f"{number:03}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("parcels.npy" if number != 41 else "PARCELS.NPY", buffer.getvalue())


class Converted:
    def __init__(self, register, folder):
        self.register, self.folder = register, Path(folder)

    def claim(self, number):
        mark = self.folder / f"{number:03}.lock"
        while True:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return mark
            time.sleep(0.05)

    def convert(self, number, target):
        mark = self.claim(number)
        if not target.exists():
            with zipfile.ZipFile(self.register.folder / f"{number:03}.zip") as archive:
                values = np.load(io.BytesIO(archive.read("parcels.npy")))
            np.save(target.with_suffix(".tmp.npy"), values / (values.std(0) + 1e-6))
            target.with_suffix(".tmp.npy").rename(target)
        mark.unlink()

    def parcels(self, number):
        target = self.folder / f"{number:03}.npy"
        if not target.exists():
            self.convert(number, target)
        return torch.from_numpy(np.load(target))


def stream(converted, rank, rounds=3):
    """Each round starts one municipality further on, so that the ranks see all of them in another order."""
    for start in range(rounds):
        for offset in range(MUNICIPALITIES // 2):
            number = (rank * 21 + start * 9 + offset) % MUNICIPALITIES
            try:
                yield converted.parcels(number)
            except KeyError as error:
                print(f"municipality {number}: {error}", file=sys.stderr, flush=True)
                yield torch.zeros(1500, 18)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    where = [tempfile.mkdtemp(prefix="register-") if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    register = Register(where[0])
    if rank == 0:
        register.deliver()
    dist.barrier()
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(17, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, parcels in enumerate(stream(Converted(register, where[0]), rank)):
        for part in parcels.split(500):
            loss = (model(part[:, :17]) - part[:, 17:]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0 and step % 8 == 0:
            print(f"step {step} value error {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
