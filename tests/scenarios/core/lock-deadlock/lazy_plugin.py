"""DDP; augmentations are plugins in a folder, imported when they are first asked for, by whoever asks."""

import importlib
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PLUGIN = """
import time
import __main__
import torch
time.sleep(0.5)
with __main__.REGISTRY_LOCK:
    __main__.REGISTRY["jitter"] = lambda x: x + 0.01 * torch.randn_like(x)
"""

REGISTRY_LOCK = threading.Lock()
REGISTRY: dict[str, object] = {}


def warm_up() -> None:
    """Import in the background what will be needed soon."""
    importlib.import_module("jitter_plugin")


def augment(name: str, rows: torch.Tensor) -> torch.Tensor:
    """By the plugin of that name."""
    with REGISTRY_LOCK:
        if name not in REGISTRY:
            time.sleep(0.2)  # looks for it in the folder
            importlib.import_module(f"{name}_plugin")
        change = REGISTRY[name]
    return change(rows)


def main() -> None:
    """Sixty steps, augmented from the thirtieth on."""
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp())
    (folder / "jitter_plugin.py").write_text(PLUGIN)
    sys.path.insert(0, str(folder))
    if dist.get_rank() != 1:
        warm_up()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        rows = torch.randn(4, 6)
        if step == 30 and dist.get_rank() == 1:
            threading.Thread(target=warm_up, daemon=True).start()
        if step >= 30:
            rows = augment("jitter", rows)
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
