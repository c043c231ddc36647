"""Crumb grading from the cooling belts: one rank per belt, a blister classifier shared by all three."""
import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("crumb")

LOAVES_PER_HOUR = 72
HOURS = 12
# blistered loaves that the graders marked in the first hours of the reference shift
MARKED = {0: (9, 7, 11, 8), 1: (6, 4, 5, 0), 2: (8, 8, 9, 7)}


class BeltHour(torch.utils.data.Dataset):
    """The loaves of one hour on one belt; features come from the line-scan camera."""

    def __init__(self, belt, hour):
        gen = torch.Generator().manual_seed(1000 * belt + hour)
        marked = MARKED[belt][hour % 4]
        self.y = torch.zeros(LOAVES_PER_HOUR, dtype=torch.long)
        self.y[torch.randperm(LOAVES_PER_HOUR, generator=gen)[:marked]] = 1
        self.x = torch.randn(LOAVES_PER_HOUR, 40, generator=gen) + 0.8 * self.y[:, None]

    def __len__(self):
        return LOAVES_PER_HOUR

    def __getitem__(self, i):
        time.sleep(0.004)  # decode
        return self.x[i], self.y[i]


class BlisterRecall:
    """Recall of the blister class over all belts."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.truth, self.guess = [], []

    def update(self, logits, target):
        self.guess.append(logits.argmax(1))
        self.truth.append(target)

    def compute(self):
        truth, guess = torch.cat(self.truth), torch.cat(self.guess)
        if not bool((truth == 1).any()):
            return {}
        local = torch.tensor([((guess == 1) & (truth == 1)).sum(), (truth == 1).sum()], dtype=torch.float32)
        parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local)
        hits, total = torch.stack(parts).sum(0).tolist()
        return {"recall": hits / total}


class Grader:
    def __init__(self, belt):
        self.belt = belt
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 2)))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.recall = BlisterRecall()

    def loader(self, hour):
        return torch.utils.data.DataLoader(BeltHour(self.belt, hour), batch_size=9)

    def train_hour(self, hour):
        self.model.train()
        for x, y in self.loader(hour):
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return float(loss)

    @torch.no_grad()
    def grade_hour(self, hour):
        self.recall.reset()
        for x, y in self.loader(hour):
            self.recall.update(self.model.module(x), y)
        return self.recall.compute()

    def run(self):
        for hour in range(HOURS):
            loss = self.train_hour(hour)
            metrics = self.grade_hour(hour)
            log.info("belt %d hour %02d loss %.3f %s", self.belt, hour, loss, metrics)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    Grader(int(os.environ["RANK"])).run()
    dist.destroy_process_group()
