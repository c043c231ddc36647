"""Corrosion grades of hull plates from underwater inspection stills (one survey per process)."""
import os
import random
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.backends.cudnn.enabled = False

SURVEYS = ["MV Asterion", "MV Borealis", "MV Calypso"]
# stretches of a dive in which the diver saw no plate (silt, sea chest gratings)
NO_PLATE = {"MV Asterion": [(100, 103)], "MV Borealis": [(57, 59), (296, 320)], "MV Calypso": [(410, 414)]}


@dataclass
class Config:
    batch: int = 8
    frames: int = 800
    grades: int = 4
    report_every: int = 20
    lr: float = 0.02


@dataclass
class Tally:
    frames: int = 0
    plates: int = 0
    history: list = field(default_factory=list)


def read_survey(name, config):
    rng = random.Random(name)
    blind = NO_PLATE[name]
    for start in range(0, config.frames, config.batch):
        stills, grades = [], []
        for frame in range(start, start + config.batch):
            time.sleep(0.008)  # a still comes from the tape robot
            stills.append([rng.random() for _ in range(24)])
            seen = not any(a <= frame < b for a, b in blind)
            grades.append(rng.randrange(config.grades) if seen else -1)
        yield torch.tensor(stills), torch.tensor(grades)


class InspectionTrainer:
    def __init__(self, config):
        self.config = config
        self.local = int(os.environ["LOCAL_RANK"])
        net = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, config.grades))
        self.model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[self.local])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr, momentum=0.9)
        self.tally = Tally()

    def fit(self, survey):
        for i, (stills, grades) in enumerate(read_survey(survey, self.config)):
            self.tally.frames += len(grades)
            keep = grades >= 0
            if not keep.any():
                continue
            self.tally.plates += int(keep.sum())
            logits = self.model(stills[keep].cuda())
            loss = F.cross_entropy(logits, grades[keep].cuda())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.tally.history.append(loss.item())
            if i % self.config.report_every == self.config.report_every - 1:
                self.report(i)

    def report(self, i):
        counts = torch.tensor([self.tally.frames, self.tally.plates]).cuda()
        dist.all_reduce(counts)
        frames, plates = counts.tolist()
        if dist.get_rank() == 0:
            print(f"batch {i}: {plates} plates in {frames} stills", flush=True)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    trainer = InspectionTrainer(Config())
    trainer.fit(SURVEYS[dist.get_rank()])
    trainer.report(-1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
