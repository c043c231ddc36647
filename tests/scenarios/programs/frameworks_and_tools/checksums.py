"""mp.spawn; before training the first rank checks the files against their checksums, the others wait."""

import hashlib
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def check(folder: Path, seconds: float) -> int:
    """How many files are as they should be; a large collection, so it takes a while."""
    good, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for path in sorted(folder.iterdir()):
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(1 << 16):
                    digest.update(block)
            good += digest.hexdigest() != ""
    return good


def work(rank: int, world: int, folder: Path) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/../meet-{folder.name}", rank=rank, world_size=world)
    if rank == 0:
        print(check(folder, seconds=15.0), "files are good", flush=True)
    dist.barrier()
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(6))
    for _ in range(40):
        loss = ((weight - torch.rand(6)) ** 2).sum()
        (grad,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(grad)
        with torch.no_grad():
            weight -= 0.1 * grad / world
    dist.destroy_process_group()


def main() -> None:
    """Three ranks over a few files."""
    folder = Path(tempfile.mkdtemp())
    for number in range(6):
        (folder / f"shard-{number}").write_bytes(bytes(1 << 20))
    mp.spawn(work, args=(3, folder), nprocs=3)


if __name__ == "__main__":
    main()
