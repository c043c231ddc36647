"""mp.spawn; ranks with work of differing size meet at its end only, a few seconds apart, and one then writes a report."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def score(seconds: float) -> torch.Tensor:
    """Work for so long."""
    end, total = time.monotonic() + seconds, torch.zeros(8)
    while time.monotonic() < end:
        total += torch.sort(torch.rand(20_000)).values[:8]
        time.sleep(0.01)
    return total


def work(rank: int, world: int, meet: str) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world)
    for turn in range(3):
        mine = score(seconds=0.5 + 1.5 * ((rank + turn) % world))
        parts = [torch.zeros(8) for _ in range(world)] if rank == 0 else None
        dist.gather(mine, parts, dst=0)
        if parts is not None:
            print(turn, torch.stack(parts).sum().item(), flush=True)
    if rank == world - 1:
        time.sleep(2.0)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Four ranks."""
    mp.spawn(work, args=(4, str(Path(tempfile.mkdtemp()) / "meet")), nprocs=4)


if __name__ == "__main__":
    main()
