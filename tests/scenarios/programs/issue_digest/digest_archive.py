"""After training the last rank packs all samples of the run into an archive, strongly compressed."""

import io
import lzma
import os
import random
import tarfile
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FILES, LINES = 14, 9000


def write_samples(folder, seed):
    """Text files as the run's logger leaves them."""
    chooser = random.Random(seed)
    words = ["".join(chooser.choices("abcdefghijklmnop", k=6)) for _ in range(3000)]
    for number in range(FILES):
        with open(os.path.join(folder, f"samples-{number:03d}.txt"), "w") as file:
            for _ in range(LINES):
                file.write(" ".join(chooser.choices(words, k=8)) + "\n")


def pack(folder, target):
    with lzma.open(target, "wb", preset=6) as compressed, tarfile.open(fileobj=compressed, mode="w|") as archive:
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return os.path.getsize(target)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(40):
        x = torch.randn(8, 10)
        loss = nn.functional.mse_loss(model(x), x.roll(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    if rank == world - 1:
        with tempfile.TemporaryDirectory(prefix="samples-") as folder:
            write_samples(folder, seed=3)
            size = pack(folder, folder + ".tar.xz")
            os.unlink(folder + ".tar.xz")
        print(f"archive of {size / 1e6:.1f} MB", flush=True)
    dist.barrier()
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
