"""DDP in a terminal of its own, with a hook on each layer that looks at what it gives."""

import os
import pdb

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def watch(module: nn.Module, limit: float) -> None:
    """Stops at the first activation that is too large."""

    def look(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        if output.abs().max() > limit:
            pdb.set_trace()
            print(layer, inputs[0].shape)

    for layer in module:
        layer.register_forward_hook(look)


def main() -> None:
    """Two hundred steps."""
    terminal, line = os.openpty()
    os.dup2(line, 0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 1))
    watch(layers, limit=50.0)
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(200):
        x = torch.randn(8, 10)
        if (step, rank) == (60, 1):
            x[3] *= 1e4
        loss = model(x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    os.close(terminal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
