"""DDP with batch norm; the first process validates the bare module, the others wait at the barrier, as they should."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def validate(net: nn.Module, seconds: float) -> float:
    """Mean of the outputs; a large set, so it takes a while."""
    net.eval()
    end, outputs = time.monotonic() + seconds, []
    while time.monotonic() < end:
        outputs.append(net(torch.randn(16, 6)).mean())
    net.train()
    return torch.stack(outputs).mean().item()


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(5):
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(16, 6)).square().mean().backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {validate(model.module, seconds=2.0):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
