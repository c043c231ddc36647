"""DDP; the first process puts the weights where others look for them, by the script that everybody uses."""

import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SCRIPT = """
set -e
sha256sum "$1" > "$1.sum"
cp -i "$1" "$1.sum" "$2"
"""


class Publisher:
    """Knows the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "published"
        self.folder.mkdir()
        self.here = folder / "model.pt"

    def publish(self, net: nn.Module) -> None:
        """Save, then copy."""
        torch.save(net.state_dict(), self.here)
        subprocess.run(["sh", "-c", SCRIPT, "publish", str(self.here), str(self.folder)], check=True)


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    publisher = Publisher(Path(tempfile.mkdtemp())) if dist.get_rank() == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        for _ in range(25):
            loss = model(torch.randn(8, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if publisher is not None:
            publisher.publish(model.module)
            print(f"epoch {epoch} is out", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
