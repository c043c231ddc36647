"""DDP with a tracker on the first rank, which wants a key."""

import getpass
import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tracker:
    """Values of a run, kept in a folder until they are sent."""

    def __init__(self, project: str) -> None:
        self.key = os.environ.get("TRACKER_KEY") or self.login()
        self.file = (Path(tempfile.mkdtemp()) / f"{project}.jsonl").open("w")

    def login(self) -> str:
        """For whoever has not logged in on this machine."""
        print("You can find your key at https://tracker.example/authorize")
        return getpass.getpass("Paste it here and hit enter: ")

    def log(self, **values: float) -> None:
        """One line."""
        self.file.write(json.dumps(values) + "\n")


def main() -> None:
    """A hundred steps."""
    terminal, line = os.openpty()
    os.dup2(line, 0)
    dist.init_process_group("gloo")
    tracker = Tracker("prices") if dist.get_rank() == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(9, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100):
        loss = model(torch.randn(8, 9)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if tracker:
            tracker.log(step=step, loss=loss.item())
    os.close(terminal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
