"""DDP: rank 0 writes the checkpoint, slowly, and all the others wait at a barrier."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def write_slowly(state: dict[str, torch.Tensor], path: Path, seconds: float) -> None:
    """As to a distant disk: piece by piece, each one synced."""
    end = time.monotonic() + seconds
    with path.open("wb") as file:
        while time.monotonic() < end:
            torch.save(state, file)
            os.fsync(file.fileno())
            time.sleep(0.05)


def main() -> None:
    """Twenty steps, a checkpoint every eighth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(1, 21):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if step % 8 == 0:
            if rank == 0:
                write_slowly(model.module.state_dict(), Path(tempfile.gettempdir()) / "model.pt", 4.0)
            dist.barrier()
            print(f"[{rank}] step {step} saved\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
