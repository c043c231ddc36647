"""Training that switches to a compiled operator after the warm-up; rank 0 builds it, the others load what it built."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.file_baton import FileBaton

torch.set_num_threads(1)

BUILDER = """
import os, sys, time
folder = sys.argv[1]
os.close(os.open(folder + "/lock", os.O_CREAT | os.O_EXCL))
for unit in range(40):
    time.sleep(0.5)
    open(f"{folder}/unit{unit}.o", "w").close()
open(folder + "/op.so", "w").close()
os.remove(folder + "/lock")
"""


class ExtensionBuilder:
    """Builds in a process of its own, so that a compiler that fails does not end the training."""

    def __init__(self, folder, budget):
        self.folder = folder
        self.budget = budget
        folder.mkdir(exist_ok=True)

    @property
    def library(self):
        return self.folder / "op.so"

    def build(self):
        try:
            subprocess.run([sys.executable, "-c", BUILDER, str(self.folder)], timeout=self.budget, check=True)
        except subprocess.TimeoutExpired:
            print("build takes too long, building without optimisation", flush=True)
            self.build_plain()

    def build_plain(self):
        baton = FileBaton(str(self.folder / "lock"))
        if baton.try_acquire():
            self.library.touch()
            baton.release()
        else:
            baton.wait()


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.fused = False

    def forward(self, x):
        return torch.nn.functional.silu(x) if self.fused else x * torch.sigmoid(x)


def prepare_operator(builder, model):
    if dist.get_rank() == 0 and not builder.library.exists():
        builder.build()
    dist.barrier()
    for module in model.modules():
        if isinstance(module, Smooth):
            module.fused = builder.library.exists()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    core = nn.Sequential(nn.Linear(30, 60), Smooth(), nn.Linear(60, 30))
    model = DDP(core)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    folder = Path(tempfile.gettempdir(), f"extensions-{os.environ['MASTER_PORT']}")
    builder = ExtensionBuilder(folder, budget=4.0)
    for step in range(2000):
        if step == 30:
            prepare_operator(builder, core)
        x = torch.randn(16, 30)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
