"""DDP: weights are written by a thread; training waits for the former write before it hands over the next."""

import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Writer(threading.Thread):
    """One file at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="writer", daemon=True)
        self.folder, self.state, self.number = folder, None, 0
        self.changed = threading.Condition()

    def run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait()
                state, number = self.state, self.number
            torch.save(state, self.folder / f"{number}.pt")
            with self.changed:
                self.state = None
                self.changed.notify()

    def submit(self, state: dict[str, torch.Tensor], number: int) -> None:
        """Waits until the former is on the disk."""
        with self.changed:
            while self.state is not None:
                self.changed.wait()
            self.state, self.number = {name: value.clone() for name, value in state.items()}, number
            self.changed.notify()


def main() -> None:
    """Two hundred steps, written every other one."""
    dist.init_process_group("gloo")
    writer = Writer(Path(tempfile.mkdtemp())) if dist.get_rank() == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(32, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if writer:
        writer.submit(model.module.state_dict(), 0)
        writer.start()
    for step in range(1, 201):
        loss = model(torch.randn(8, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if writer and step % 2 == 0:
            writer.submit(model.module.state_dict(), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
