"""DDP: between two phases, rank 0 has the raw data converted by a program of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

CONVERTER = """
import sys, time
source, target, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
values = [float(v) for v in open(source).read().split()]
end = time.monotonic() + seconds
while time.monotonic() < end:
    values = sorted((v * 1.0001 + 0.5) % 7.0 for v in values)
    print("pass", len(values), flush=True)
open(target, "w").write(" ".join(map(str, values)))
"""


def convert(folder: Path, name: str, seconds: float) -> Path:
    source, target = folder / f"{name}.txt", folder / f"{name}.converted"
    source.write_text(" ".join(str(k * 0.37 % 5) for k in range(20000)))
    command = [sys.executable, "-c", CONVERTER, str(source), str(target), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=True)
    print(f"{name}: {len(done.stdout.splitlines())} passes", flush=True)
    return target


def phase(model, optimizer, values: torch.Tensor, steps: int, generator):
    for _ in range(steps):
        x = values[torch.randint(len(values), (16, 8), generator=generator)]
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir(), f"convert-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(rank)
    for name, seconds in {"small": 0.5, "large": 10.0}.items():
        path = [str(convert(folder, name, seconds)) if rank == 0 else None]
        dist.broadcast_object_list(path, src=0)
        values = torch.tensor([float(v) for v in Path(path[0]).read_text().split()])
        loss = phase(model, optimizer, values, 300, generator)
        print(f"rank {rank}: {name} {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
