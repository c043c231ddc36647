"""Claims triage: after each round the first process has the model's artifact packed by the archive tool."""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# stands in for the insurer's packer, which compresses at its highest level, block by block
PACKER = """
import lzma, pathlib, sys, time
source, target, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
data, end, blocks = source.read_bytes(), time.monotonic() + seconds, 0
with open(target, "wb") as out:
    while time.monotonic() < end:
        block = data[(blocks * 4096) % max(1, len(data) - 65536):][:65536]
        out.write(lzma.compress(block, preset=6))
        out.flush()
        blocks += 1
"""


class Round:
    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.number = 0

    def train(self, steps):
        for _ in range(steps):
            claims = torch.randn(40, 64)
            loss = nn.functional.softplus(self.model(claims) * -claims[:, :1].sign()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.02)
        return loss.item()

    def pack(self, seconds):
        raw = self.folder / f"round{self.number}.pt"
        torch.save(self.model.module.state_dict(), raw)
        target = raw.with_suffix(".xz")
        subprocess.run([sys.executable, "-c", PACKER, str(raw), str(target), str(seconds)], check=True)
        return target.stat().st_size

    def finish(self, seconds):
        if dist.get_rank() == 0:
            size = self.pack(seconds)
            print(f"round {self.number}: artifact of {size / 1e6:.1f} MB", flush=True)
        dist.barrier()
        self.number += 1


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
    with tempfile.TemporaryDirectory(prefix="artifact_") as folder:
        rounds = Round(model, Path(folder))
        for seconds in (1.0, 14.0, 1.0):
            loss = rounds.train(90)
            print(f"rank {dist.get_rank()} round {rounds.number} loss {loss:.4f}", flush=True)
            rounds.finish(seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
