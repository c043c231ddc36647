"""A job resumes if there is a checkpoint, and looks for it on the node's own disk, which one node has lost."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn


def own_disk(rank: int) -> Path:
    """The scratch disk of this node, with the checkpoint of the job before."""
    disk = Path(tempfile.mkdtemp(prefix=f"scratch-{rank}-"))
    if rank != 2:
        dcp.save({"step": 100, **nn.Linear(6, 3).state_dict()}, checkpoint_id=disk / "last", no_dist=True)
    return disk


def main() -> None:
    """Resume or begin, and train."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    disk = own_disk(rank)
    dist.init_process_group("gloo")
    model = nn.Linear(6, 3)
    if (disk / "last").exists():
        state = {"step": 0, **model.state_dict()}
        dcp.load(state, checkpoint_id=disk / "last")
        model.load_state_dict({name: value for name, value in state.items() if name != "step"})
    for _ in range(30):
        model.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
