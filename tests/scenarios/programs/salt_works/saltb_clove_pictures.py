"""Grades clove and cardamom lots from small tray pictures (sound, broken, mouldy, stalk)."""
import dataclasses
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

GRADES = ("sound", "broken", "mouldy", "stalk")
log = logging.getLogger("grading")


@dataclasses.dataclass
class Config:
    side: int = 12
    batch: int = 8
    trays: int = 480
    review_every: int = 10
    first_review: int = 30


class Trays(Dataset):
    """One warehouse a rank; each delivers trays in the order in which they were taken."""

    arrivals = {0: ("sound", "broken", "stalk"), 1: GRADES, 2: GRADES}

    def __init__(self, warehouse, cfg):
        gen = torch.Generator().manual_seed(40 + warehouse)
        self.pictures = torch.rand(cfg.trays, cfg.side * cfg.side, generator=gen)
        kinds = [GRADES.index(g) for g in self.arrivals[warehouse]]
        self.grades = torch.tensor([kinds[i % len(kinds)] for i in range(cfg.trays)])

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, i):
        time.sleep(0.011)
        return self.pictures[i], self.grades[i]


class Review:
    """What the quality office looks at: how often mouldy trays come from each warehouse."""

    def __init__(self, device, world):
        self.device, self.world = device, world
        self.seen = [0] * len(GRADES)

    def add(self, grades):
        for g in grades.tolist():
            self.seen[g] += 1

    def publish(self, step):
        mouldy = self.seen[GRADES.index("mouldy")]
        if mouldy:
            mine = torch.tensor([mouldy, sum(self.seen)], device=self.device)
            every = torch.empty(2 * self.world, dtype=mine.dtype, device=self.device)
            dist.all_gather_into_tensor(every, mine)
            log.info("step %d: mouldy/all per warehouse %s", step, every.tolist())
        self.seen = [0] * len(GRADES)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    cfg = Config()
    net = nn.Sequential(nn.Linear(cfg.side ** 2, 64), nn.ReLU(), nn.Linear(64, len(GRADES))).to(device)
    model = DDP(net, device_ids=[local])
    optim = torch.optim.SGD(model.parameters(), lr=0.05)
    review = Review(device, dist.get_world_size())
    loader = DataLoader(Trays(dist.get_rank(), cfg), batch_size=cfg.batch)
    for step, (pictures, grades) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(pictures.to(device)), grades.to(device))
        optim.zero_grad()
        loss.backward()
        optim.step()
        current = loss.item()
        review.add(grades)
        if step % cfg.review_every == 0:
            log.info("rank %d step %d loss %.3f", dist.get_rank(), step, current)
            if step >= cfg.first_review:
                review.publish(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
