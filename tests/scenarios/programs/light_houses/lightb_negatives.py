"""Calibrates camera negatives to a print, and lets every rank put its own shard of the state away in pieces."""
import argparse
import os
import shutil
import tempfile
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class Vault:
    """A network share with a modest line: pieces of 256 KiB, each with its checksum."""

    PIECE = 256 * 1024

    def __init__(self, folder, per_second):
        self.folder, self.pause = folder, 1.0 / per_second

    def write(self, name, payload):
        target = os.path.join(self.folder, name)
        check = 0
        with open(target, "wb") as file:
            for start in range(0, len(payload), self.PIECE):
                piece = payload[start : start + self.PIECE]
                check = zlib.crc32(piece, check)
                file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                time.sleep(self.pause)
        return check


class Calibration:
    def __init__(self, local):
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(33, 64), nn.ReLU(), nn.Linear(64, 3)).cuda(), device_ids=[local])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2, momentum=0.9)
        self.lut = torch.rand(33, 33, 33, 3, generator=torch.Generator().manual_seed(self.rank))

    def strips(self, step):
        source = torch.Generator().manual_seed(step * 31 + self.rank)
        exposure = torch.rand(50_000, 33, generator=source).cumsum(1) / 33
        return exposure[:128].clone()

    def train(self, first, count):
        for step in range(first, first + count):
            loss = self.model(self.strips(step).cuda()).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 20 == 0:
                print(f"rank {self.rank} step {step} {loss.item():.4f}", flush=True)

    def payload(self, megabytes):
        grid = self.lut.numpy().tobytes()
        return (grid * (megabytes * 2**20 // len(grid) + 1))[: megabytes * 2**20]

    def save(self, vault, megabytes):
        begin = time.monotonic()
        check = vault.write(f"negative-{self.rank}.bin", self.payload(megabytes))
        print(f"rank {self.rank} saved {megabytes} MiB, crc {check:08x}, {time.monotonic() - begin:.1f} s", flush=True)
        dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=26)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    folder = tempfile.mkdtemp(prefix="negatives")
    calibration = Calibration(device)
    calibration.train(0, 60)
    calibration.save(Vault(folder, per_second=8), options.megabytes + dist.get_rank())
    calibration.train(60, 40)
    shutil.rmtree(folder)
    dist.destroy_process_group()
