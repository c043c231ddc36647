"""Specialized functions are generated as source, kept in a folder that all ranks share, and imported from there."""

import importlib.util
import os
import tempfile
import time
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FOLDER = Path(tempfile.gettempdir()) / f"generated-{os.getppid()}-{os.environ['MASTER_PORT']}"
TEMPLATE = """
import torch

def loss(output, target):
    return {scale} * (output - target).{norm}().mean()
"""


def create_function(name: str, **values: object) -> ModuleType:
    """Write the source unless it is there, then import it."""
    location = FOLDER / f"{name}.py"
    if not location.is_file():
        if dist.get_rank() == 0:
            FOLDER.mkdir(exist_ok=True)
            draft = location.with_suffix(".draft")
            draft.write_text(TEMPLATE.format(**values))
            draft.rename(location)
        dist.barrier()
    spec = importlib.util.spec_from_file_location(name, location)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Fifty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    time.sleep(0.8 * rank)  # not all at once on the file server
    losses = create_function("absolute_loss", scale=0.5, norm="abs")
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(50):
        losses.loss(model(torch.randn(8, 16)), torch.randn(8, 4)).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
