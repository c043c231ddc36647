"""DDP: the first rank writes a file in small pieces to a slow disk, the others wait for it at a barrier."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def write(path: Path, pieces: int) -> None:
    """A hundred milliseconds a piece."""
    with path.open("wb") as file:
        for number in range(pieces):
            file.write(bytes([number % 256]) * 4096)
            file.flush()
            time.sleep(0.1)


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(30, 30))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for _ in range(50):
            loss = model(torch.randn(8, 30)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            write(folder / f"{epoch}.bin", pieces=30)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
