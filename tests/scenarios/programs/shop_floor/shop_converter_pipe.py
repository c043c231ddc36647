"""After each round the checkpoint is converted to the format of the serving team, by their own command-line tool."""

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

# Stands for `servefmt convert IN OUT --verbose`, which reports each tensor it has seen.
TOOL = """
import sys, torch
state = torch.load(sys.argv[1])
with open(sys.argv[2], "w") as out:
    for name, value in state.items():
        for number, row in enumerate(value.reshape(-1, value.shape[-1]).tolist()):
            print(f"converted {name}[{number}]: {row}")
            out.write(f"{name} {number} {row}\\n")
"""


class ServingExport:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)

    def __call__(self, model: nn.Module, name: str) -> Path:
        source, target = self.folder / f"{name}.pt", self.folder / f"{name}.srv"
        torch.save(model.state_dict(), source)
        tool = subprocess.Popen(
            [sys.executable, "-c", TOOL, str(source), str(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if tool.wait() != 0:
            raise RuntimeError(tool.stdout.read())
        return target


def train_round(model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator, steps: int) -> float:
    for _ in range(steps):
        x = torch.randn(16, 32, generator=generator)
        loss = (model(x) - x.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    export = ServingExport(Path(tempfile.gettempdir()) / f"serving-{os.environ['MASTER_PORT']}")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for number in range(1, 6):
        loss = train_round(model, optimizer, generator, steps=90)
        if rank == 0:
            target = export(model.module, f"round-{number}")
            print(f"round {number}: loss {loss:.4f}, {target.name}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
