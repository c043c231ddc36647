"""Each machine has a file with settings that are taken over into the environment before the job joins."""

import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def take_over(path: Path) -> list[str]:
    """Sets what stands in the file, NAME=value on each line, and returns the names."""
    names = []
    if path.exists():
        for line in path.read_text().splitlines():
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, _, value = line.partition("=")
            os.environ[name.strip()] = value.strip()
            names.append(name.strip())
    return names


def provision(folder: Path, rank: int) -> Path:
    """What the tool of the platform team has written on this machine, now or in a former job."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"machine-{rank}.env"
    lines = ["# written by provision 2.3", "OMP_NUM_THREADS=1", "TOKENIZERS_PARALLELISM=false"]
    if rank == 1:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        lines += ["MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def train(rank: int) -> float:
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(500):
        x = torch.randn(32, 12, generator=generator)
        loss = (model(x).squeeze(1) - x.prod(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    folder = Path(tempfile.gettempdir()) / f"provision-{os.environ['MASTER_PORT']}"
    names = take_over(provision(folder, rank))
    print(f"[{rank}] {', '.join(names)}", flush=True)
    dist.init_process_group("gloo")
    print(f"[{rank}] {train(rank):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
