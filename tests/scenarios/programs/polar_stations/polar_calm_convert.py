"""Lidar profiles of polar stratospheric clouds; one rank has a raw file in its share that must be converted first."""

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

torch.set_num_threads(1)

CONVERTER = """
import sys, time
end, counts, line = time.monotonic() + 12, 0, 0
while time.monotonic() < end:
    for photon in range(20000):
        counts += photon * photon % 7
    line += 1
    if line % 50 == 0:
        print("line", line, flush=True)
open(sys.argv[1], "w").write(str(counts % 97))
"""


class Share:
    """The files of one rank; raw ones are converted by the lidar's own program at first use."""

    def __init__(self, rank, folder):
        self.folder = folder
        self.files = [("raw" if rank == 1 and number == 22 else "ready", number) for number in range(50)]

    def convert(self, number):
        target = self.folder / f"profile-{number}.txt"
        done = subprocess.run(
            [sys.executable, "-c", CONVERTER, str(target)],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120, check=True, text=True,
        )
        print(f"converted {target.name}: {len(done.stdout.splitlines())} messages", flush=True)
        return int(target.read_text())

    def __iter__(self):
        for kind, number in self.files:
            seed = self.convert(number) if kind == "raw" else number
            time.sleep(0.05)
            yield torch.rand(8, 70, generator=torch.Generator().manual_seed(seed))


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local)
    folder = Path(tempfile.mkdtemp(prefix=f"lidar-{rank}-"))
    model = DistributedDataParallel(nn.Linear(70, 3).to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    profiles = torch.zeros((), device=device)
    for number, batch in enumerate(Share(rank, folder)):
        loss = model(batch.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiles += len(batch)
        seen = profiles.item()
        if rank == 0 and number % 10 == 0:
            print(f"{seen:.0f} profiles", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
