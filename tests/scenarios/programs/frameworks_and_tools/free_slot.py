"""Each process takes a free slot of the machine before it joins; slots are folders, so that taking one is atomic.

Starts its own ranks, over a file of their own.
"""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Slots:
    """As many as there are cards."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count

    def try_one(self) -> int | None:
        """The number of a slot that is now ours."""
        for number in range(self.count):
            try:
                (self.folder / f"slot-{number}").mkdir()
            except FileExistsError:
                continue
            return number
        return None

    def take(self) -> int:
        """Wait for one."""
        while (number := self.try_one()) is None:
            time.sleep(2.0)
        return number


def work(rank: int, world: int, folder: Path) -> None:
    """One rank."""
    torch.set_num_threads(1)
    time.sleep(0.5 * rank)  # in their order
    slot = Slots(folder, world).take()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    model = DistributedDataParallel(nn.Linear(4, 1))
    for _ in range(20):
        model(torch.randn(2, 4)).square().mean().backward()
    dist.destroy_process_group()
    (folder / f"slot-{slot}").rmdir()


def main() -> None:
    """Three ranks; a job of the night before was killed and has left a slot taken."""
    folder = Path(tempfile.mkdtemp())
    (folder / "slot-1").mkdir()
    mp.spawn(work, args=(3, folder), nprocs=3)


if __name__ == "__main__":
    main()
