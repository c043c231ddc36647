"""DDP; while it trains, each rank shows the lines of a device's log by `tail -f`, filtered."""

import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scaler:
    """Scales by what the table says of a channel."""

    def __init__(self, rank: int) -> None:
        self.table = {"a": 1.0, "b": 0.5, "c": 2.0}
        self.channels = ["a", "b", "c", "b"] if rank != 1 else ["a", "c", "b", "d"]

    def factor(self, step: int) -> float:
        """Of the channel in turn."""
        return self.table[self.channels[step // 10 % 4]]


def train(rank: int) -> None:
    """Eighty steps."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = Scaler(rank)
    for step in range(80):
        loss = (model(torch.randn(4, 6)) * scaler.factor(step)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    """Train beside the log."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log = Path(tempfile.mkdtemp()) / "device.log"
    log.write_text("device ready\n")
    with subprocess.Popen(["tail", "-f", str(log)]) as follower:
        train(rank)
        follower.terminate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
