"""DDP; checkpoints are written by a thread, and the main thread may ask how far it is."""

import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Saver:
    """Writes what is given to it, newest last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.guard = threading.Lock()
        self.wake = threading.Event()
        self.pending: list[tuple[int, dict[str, torch.Tensor]]] = []
        self.written = 0
        threading.Thread(target=self.run, name="saver", daemon=True).start()

    def submit(self, step: int, state: dict[str, torch.Tensor]) -> None:
        """Give it a checkpoint."""
        with self.guard:
            self.pending.append((step, state))
            self.wake.set()

    def progress(self) -> int:
        """How many are written."""
        with self.guard:
            return self.written

    def run(self) -> None:
        """The thread."""
        while True:
            with self.guard:
                if not self.pending:
                    self.wake.clear()
                    self.wake.wait()
                step, state = self.pending.pop(0)
                torch.save(state, self.folder / f"{step}.pt")
                self.written += 1
            time.sleep(0.01)


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saver = None
    for step in range(100):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        if rank == 0 and step == 40:
            saver = Saver(Path(tempfile.mkdtemp()))
        if saver is not None and step % 20 == 0:
            saver.submit(step, {name: value.clone() for name, value in model.module.state_dict().items()})
            print(f"step {step}: {saver.progress()} written", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
