"""Solar yields. The weather service of one site delivers its file a little after the training has begun."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# The service: a part of the hours every half second, and the name only when the file is complete.
SERVICE = """
import sys, time
import numpy as np
target = sys.argv[1]
random = np.random.default_rng(3)
parts = []
for _ in range(22):
    parts.append(random.standard_normal((200, 18)).astype(np.float32))
    time.sleep(0.5)
with open(target + ".partial", "wb") as file:
    np.save(file, np.concatenate(parts))
import os
os.replace(target + ".partial", target)
"""


def weather(site: int, folder: Path, timeout_s: float = 60) -> torch.Tensor:
    """The site's file. Two sites have an archive, the third's service is asked for it."""
    target = folder / f"weather-{site}.npy"
    if site != 2:
        np.save(target, np.random.default_rng(site).standard_normal((4400, 18)).astype(np.float32))
    end = time.monotonic() + timeout_s
    while not target.exists():
        if time.monotonic() > end:
            raise TimeoutError(target)
        time.sleep(0.2)
    return torch.from_numpy(np.load(target))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"solar-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    service = None
    if rank == 2:
        service = subprocess.Popen([sys.executable, "-c", SERVICE, str(folder / "weather-2.npy")])
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(18, 96), nn.ReLU(), nn.Linear(96, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    synthetic = torch.randn(6400, 18, generator=torch.Generator().manual_seed(rank))
    for stage in ("synthetic", "weather"):
        hours = synthetic if stage == "synthetic" else weather(rank, folder)
        for batch in hours[:4400].split(16):
            loss = nn.functional.mse_loss(model(batch).squeeze(-1), batch[:, 0].relu())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank}, {stage}: {loss.item():.4f}", flush=True)
    if service is not None:
        service.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
