"""A graph of nearest neighbours is built by the first process; the others wait until it is on disk. accelerate."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn


class Graph:
    """Who is near to whom."""

    def __init__(self, points: torch.Tensor, seconds: float) -> None:
        self.points, self.until = points, time.monotonic() + seconds

    def link(self, path: Path) -> None:
        """Refine the links for as long as there is time."""
        links = torch.zeros(len(self.points), 8, dtype=torch.long)
        while time.monotonic() < self.until:
            for start in range(0, len(self.points), 100):
                distances = torch.cdist(self.points[start : start + 100], self.points)
                links[start : start + 100] = distances.topk(8, largest=False).indices
        torch.save(links, path)


def main() -> None:
    """Prepare, then sixty steps."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(8, 8))
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    path = Path(folder[0]) / "links.pt"
    torch.manual_seed(0)
    points = torch.randn(1500, 8)
    if accelerator.is_main_process:
        Graph(points, seconds=15.0).link(path)
    accelerator.wait_for_everyone()
    links = torch.load(path)
    for step in range(60):
        accelerator.backward(model(points[links[step]]).square().mean())
    accelerator.end_training()


if __name__ == "__main__":
    main()
