"""Training is resumed from a checkpoint if there is one. The disk is each machine's own, and only the first has the file."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel


def disk(rank: int) -> Path:
    """This rank's local disk."""
    path = Path(tempfile.gettempdir()) / f"disk-{rank}"
    path.mkdir(exist_ok=True)
    return path


def earlier_run(rank: int) -> None:
    """What an earlier run on the first machine has left."""
    if rank == 0:
        state = {"model": torch.nn.Linear(16, 16).state_dict(), "step": torch.tensor(100)}
        dcp.save(state, checkpoint_id=disk(rank) / "latest", no_dist=True)


def resume(model: torch.nn.Module, path: Path) -> int:
    """Load weights in place. Returns the step."""
    state = {"model": model.state_dict(), "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=path)
    model.load_state_dict(state["model"])
    return int(state["step"])


def main() -> None:
    """Ten steps from wherever it was."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    earlier_run(rank)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(16, 16)
    begin = 0
    if (disk(rank) / "latest" / ".metadata").exists():
        begin = resume(model, disk(rank) / "latest")
    dist.barrier()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(begin, begin + 10):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        print(f"[{rank}] step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
