"""Which church a bell belongs to; after each epoch the first rank writes a report while the others wait."""

import hashlib
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def strikes(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Spectra of strikes, with the church."""
    generator = torch.Generator().manual_seed(rank)
    return [
        (torch.randn(10, 30, generator=generator), torch.randint(0, 6, (10,), generator=generator)) for _ in range(30)
    ]


def write_report(net: nn.Module, path: Path) -> None:
    """Digest and size of every weight, at the pace of the shared disk."""
    report = {}
    for name, weight in net.state_dict().items():
        report[name] = {"digest": hashlib.sha256(weight.numpy().tobytes()).hexdigest(), "shape": list(weight.shape)}
        time.sleep(0.6)
    path.write_text(json.dumps(report))


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, 6))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = Path(tempfile.mkdtemp())
    batches = strikes(rank)
    for epoch in range(4):
        for spectra, churches in batches:
            loss = nn.functional.cross_entropy(model(spectra), churches)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            write_report(net, folder / f"epoch_{epoch}.json")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
