"""Hazard-map model; every rank writes its own shard of the embedding table, gently, to a shared file server."""
import hashlib
import io
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class ShardWriter:
    """Writes in blocks with a pause after each: the file server belongs to the hydrologists as well."""

    block = 256 * 1024
    pause = 0.15

    def __init__(self, folder, rank):
        self.path = pathlib.Path(folder) / f"cells-{rank}.bin"

    def write(self, table):
        buffer = io.BytesIO()
        torch.save(table, buffer)
        raw = buffer.getvalue()
        digest = hashlib.sha256()
        with open(self.path, "wb") as out:
            for start in range(0, len(raw), self.block):
                piece = raw[start:start + self.block]
                out.write(piece)
                out.flush()
                os.fsync(out.fileno())
                digest.update(piece)
                time.sleep(self.pause)
        return digest.hexdigest()


class HazardNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(40, 64)
        self.risk = nn.Linear(64, 4)

    def forward(self, x):
        return self.risk(torch.tanh(self.mix(x)))


class Run:
    def __init__(self):
        self.rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.rank)
        dist.init_process_group("nccl")
        torch.manual_seed(self.rank)
        self.cells = torch.rand(85_000, 60)
        self.model = DistributedDataParallel(HazardNet().cuda(), device_ids=[self.rank])
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def steps(self, n):
        for _ in range(n):
            rows = self.cells[torch.randint(0, len(self.cells), (512,))]
            for _ in range(60):
                rows = 0.8 * rows + 0.2 * rows.roll(1, 1)
            risk = (rows.mean(1) * 4).long().clamp(0, 3)
            loss = nn.functional.cross_entropy(self.model(rows[:, :40].cuda()), risk.cuda())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            loss.item()

    def save(self, folder):
        digest = ShardWriter(folder, self.rank).write(self.cells)
        digests = [None] * dist.get_world_size()
        dist.all_gather_object(digests, digest)
        if self.rank == 0:
            (pathlib.Path(folder) / "SHA256").write_text("\n".join(digests))
            print("saved", [d[:8] for d in digests], flush=True)


def main():
    run = Run()
    run.steps(120)
    with tempfile.TemporaryDirectory(prefix="hazard-") as folder:
        run.save(folder)
        dist.barrier()
    run.steps(60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
