"""The age of trees by the width of their rings, with a page of histograms that is renewed by a timer."""

import json
import signal
import tempfile
import threading
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Page:
    """Histograms of the weights, added by the training and by a command, written twice a second."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock, self.bars = path, threading.Lock(), {}
        signal.signal(signal.SIGALRM, self.write)
        signal.setitimer(signal.ITIMER_REAL, 0.5)

    def add(self, step: int, model: nn.Module) -> None:
        """The newest histogram of each parameter."""
        with self.lock:
            for name, value in model.named_parameters():
                self.bars[name] = (step, torch.histc(value.detach(), bins=64).tolist())

    def write(self, number: int, frame: FrameType | None) -> None:
        """The page as it is now."""
        with self.lock:
            self.path.write_text(json.dumps(self.bars))
        signal.setitimer(signal.ITIMER_REAL, 0.5)


def main() -> None:
    """Up to three thousand steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(4000, 256), nn.Flatten(), nn.Linear(256 * 12, 1))
    network[0].weight.requires_grad_(False)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    page = Page(Path(tempfile.mkdtemp()) / "weights.json") if rank == 0 else None
    generator = torch.Generator().manual_seed(rank)
    for step in range(3000):
        widths = torch.randint(0, 4000, (8, 12), generator=generator)
        loss = nn.functional.mse_loss(model(widths), widths.float().mean(1, keepdim=True) / 4000)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if page:
            page.add(step, model)
    if page:
        signal.setitimer(signal.ITIMER_REAL, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
