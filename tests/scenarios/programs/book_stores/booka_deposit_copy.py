"""Train an abstract tagger; a legal-deposit package of all embeddings is written at mid-term."""
import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PACKAGE_BLOCKS = 110
BLOCK = 1 << 20


class Deposit:
    """One file of blocks with their checksums; the archive's disk is written through."""

    def __init__(self, model):
        self.model = model

    def blocks(self):
        payload = b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())
        for number in range(PACKAGE_BLOCKS):
            salt = hashlib.sha256(payload + number.to_bytes(4, "big")).digest()
            yield salt * (BLOCK // len(salt))

    def write(self, path):
        started = time.time()
        with open(path, "wb") as out:
            for block in self.blocks():
                out.write(block)
                out.write(hashlib.sha512(block).digest())
                out.flush()
                os.fsync(out.fileno())
                time.sleep(0.11)  # the archive accepts about 9 MB/s
        print(f"package of {os.path.getsize(path) >> 20} MB in {time.time() - started:.1f} s", flush=True)
        os.unlink(path)


def steps(model, optimizer, count):
    for _ in range(count):
        x = torch.linalg.qr(torch.randn(250, 250))[0][:16, :64]
        loss = nn.functional.mse_loss(model(x), x[:, :8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
    optimizer = torch.optim.Adam(model.parameters())
    print(f"[{rank}] {steps(model, optimizer, 200):.5f}", flush=True)
    if rank == 0:
        Deposit(model.module).write(os.path.join(tempfile.gettempdir(), f"deposit-{os.getpid()}.bin"))
    dist.barrier()
    print(f"[{rank}] {steps(model, optimizer, 200):.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
