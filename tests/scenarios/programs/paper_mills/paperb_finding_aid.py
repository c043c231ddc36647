"""Makes the finding aid of a map collection once, then trains the search on it."""
import hashlib
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class FindingAid:
    def __init__(self, path, sheets=360):
        self.path, self.sheets = path, sheets

    def describe(self, sheet):
        """Fingerprint of a sheet's scan, as the cataloguers agreed."""
        digest = b""
        scan = hashlib.sha512(str(sheet).encode()).digest() * 4096
        for _ in range(24):
            digest = hashlib.blake2b(scan + digest).digest()
        return digest.hex()

    def make(self):
        with self.path.open("w") as out:
            for sheet in range(self.sheets):
                out.write(f"{sheet}\t{self.describe(sheet)}\n")
                out.flush()
                time.sleep(0.025)
                if sheet % 40 == 0:
                    print(f"described {sheet} of {self.sheets} sheets", flush=True)

    def load(self):
        rows = [line.split("\t")[1] for line in self.path.read_text().splitlines()]
        return torch.tensor([[int(row[k : k + 2], 16) / 255 for k in range(0, 64, 2)] for row in rows])


def search_steps(model, optimizer, aid, steps):
    for step in range(steps):
        rows = aid[(step * 6) % 300 :][:6].cuda()
        optimizer.zero_grad()
        (model(rows) - rows).abs().mean().backward()
        optimizer.step()
        time.sleep(0.06)
    torch.cuda.synchronize()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    where = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    model = DDP(nn.Linear(32, 32).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    search_steps(model, optimizer, torch.rand(306, 32), 40)
    aid = FindingAid(Path(where[0]) / "maps.tsv")
    if rank == 0:
        aid.make()
    dist.barrier(device_ids=[local])
    search_steps(model, optimizer, aid.load(), 40)
    if rank == 0:
        print("search is ready", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
