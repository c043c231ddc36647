"""DDP: power of a wind farm; the first rank writes a row for each step to a table, in the background."""

import json
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def summary(step: int, wind: torch.Tensor, error: float) -> dict[str, float] | None:
    """The row of a step, if any turbine turned."""
    turning = wind > 3.0
    if not turning.any():
        return None
    return {"step": step, "wind": wind[turning].mean().item(), "error": error}


def write(rows: "queue.Queue[dict[str, float] | None]", path: Path) -> None:
    """To the end of the table."""
    with path.open("w") as table:
        for row in iter(rows.get, None):
            table.write(json.dumps(row) + "\n")


def winds(rank: int, step: int) -> torch.Tensor:
    """Sixteen turbines on one of three hills."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    mean = 1.0 if (rank, step) == (0, 17) else 8.0
    return mean + torch.rand(16, generator=generator)


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rows: queue.Queue[dict[str, float] | None] = queue.Queue(maxsize=8)
    if rank == 0:
        path = Path(tempfile.mkdtemp(prefix="wind-")) / "table.jsonl"
        threading.Thread(target=write, args=(rows, path), daemon=True).start()
    for step in range(80):
        wind = winds(rank, step)
        error = (model(wind) - wind.pow(3).sum() / 1e4).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        if rank == 0:
            rows.put(summary(step, wind, error.item()))
    if rank == 0:
        rows.put(None)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
