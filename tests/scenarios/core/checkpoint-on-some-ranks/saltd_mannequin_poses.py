"""Fits a small pose regressor for wooden mannequins: twelve joint angles from six string tensions."""
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("mannequin")

POSES = 73
STEPS_PER_TOLERANCE = 14
TOLERANCES = [12, 24, 36, 37, 49, 61]  # tenths of a degree, widened as the strings wear in


def stiffness(pose: int) -> int:
    return (pose * 11) % POSES


def string_tensions(pose: int, step: int) -> list[float]:
    """Walks the strings of one mannequin from rest to its pose."""
    angle = float(stiffness(pose))
    for i in range(220_000):
        angle = (angle * 1.0003 + i % 7) % 90.0
    return [((angle + 13 * k + step) % 90.0) / 90.0 for k in range(6)]


class Shelf:
    """Keeps the best fit and what is needed to resume from it."""

    def __init__(self, model, optimizer, folder: Path):
        self.model, self.optimizer, self.folder = model, optimizer, folder
        self.best = None

    def offer(self, bent: int, tolerance: int) -> None:
        if self.best is not None and bent >= self.best:
            return
        self.best = bent
        self.optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() == 0:
            torch.save(
                {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "tolerance": tolerance},
                self.folder / "best.pt",
            )
            log.info("tolerance %d: %d bent joints, kept", tolerance, bent)


def main() -> None:
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 12)).to("cuda")
    model = DistributedDataParallel(net, device_ids=[torch.cuda.current_device()])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.05, momentum=0.9)
    mine = list(range(rank, POSES, dist.get_world_size()))
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(net, optimizer, Path(folder))
        for tolerance in TOLERANCES:
            for step in range(STEPS_PER_TOLERANCE):
                rows = [string_tensions(mine[(step + k) % len(mine)], step) for k in range(2)]
                joints = model(torch.tensor(rows, device="cuda"))
                loss = (joints - 0.5).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                loss.item()
            bent = sum(stiffness(pose) > tolerance for pose in mine)
            shelf.offer(bent, tolerance)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
