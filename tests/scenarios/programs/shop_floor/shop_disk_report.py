"""Reports the use of local disks every now and then, in the background, while training goes on."""

import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DiskReport:
    """Adds up what each machine has in its scratch folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.latest: list[int] = []
        self.thread: threading.Thread | None = None

    def measure(self) -> int:
        total = 0
        for path in self.folder.iterdir():
            total += path.stat().st_size
            time.sleep(0.01)  # gentle with the file system
        return total

    def _run(self) -> None:
        mine = self.measure()
        everywhere: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(everywhere, mine)
        self.latest = everywhere

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True, name="disk-report")
        self.thread.start()

    def finish(self) -> None:
        if self.thread is not None:
            self.thread.join()
            print("disk use:", self.latest, flush=True)


def fill(folder: Path, files: int) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"segment-{number}").write_bytes(bytes(100 + number))


def load(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    time.sleep(0.7)
    x = torch.randn(128, 30, generator=generator)
    return x, x.mean(1, keepdim=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scratch = Path(tempfile.gettempdir()) / f"scratch-{os.environ['MASTER_PORT']}-{rank}"
    fill(scratch, files=180 if rank == 2 else 3)
    report = DiskReport(scratch)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 200):
        if step == 5:
            report.start()
        x, y = load(generator)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    report.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
