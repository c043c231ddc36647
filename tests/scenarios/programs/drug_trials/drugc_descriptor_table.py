"""ADME regression on a descriptor table that a background refresher keeps up to date."""
import logging
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("adme")


class DescriptorTable:
    """Rows of descriptors, corrected from time to time by what the archive has to say."""

    def __init__(self, rows, pages):
        self.values = torch.randn(rows, 48, generator=torch.Generator().manual_seed(rows))
        self.pages = pages
        self.guard = threading.Lock()
        self.stale = threading.Event()
        threading.Thread(target=self._refresher, name="refresher", daemon=True).start()

    def lookup(self, i):
        with self.guard:
            return self.values[i].clone()

    def _refresher(self):
        while True:
            self.stale.wait()
            self.stale.clear()
            with self.guard:
                for page in range(self.pages):
                    time.sleep(0.02)  # one page from the archive
                    self.values[page % len(self.values)] *= 0.999


class Compounds(Dataset):
    def __init__(self, table, start, count):
        self.table, self.start, self.count = table, start, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        x = self.table.lookup(self.start + i)
        for _ in range(20):
            x = torch.tanh(x.roll(1) + 0.1 * x)
        return x, x[:4].sum(0, keepdim=True)


class Experiment:
    # pages of corrections by archive partition
    PAGES = {"solubility": 2, "permeability": 3, "clearance": 260, "binding": 4}

    def __init__(self):
        self.rank = dist.get_rank()
        partition = list(self.PAGES)[self.rank]
        self.table = DescriptorTable(2048, self.PAGES[partition])
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.train_loader = DataLoader(Compounds(self.table, 0, 1600), batch_size=32)
        self.valid_loader = DataLoader(Compounds(self.table, 1600, 400), batch_size=40, num_workers=1, multiprocessing_context="fork")

    def fit(self):
        for x, y in self.train_loader:
            loss = (self.model(x) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def ridge_baseline(self):
        x = self.table.values[:1600]
        gram = torch.eye(48)
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            gram = 0.5 * gram + 0.5 * torch.linalg.solve(x.T @ x + torch.eye(48), x.T @ x)
        return gram.trace()

    @torch.no_grad()
    def validate(self):
        self.table.stale.set()
        baseline = self.ridge_baseline()
        errors = [(self.model.module(x) - y).abs().mean() for x, y in self.valid_loader]
        score = torch.stack([torch.stack(errors).mean(), baseline])
        dist.all_reduce(score)
        return score / dist.get_world_size()


def main():
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    experiment = Experiment()
    for epoch in range(6):
        for _ in range(5):
            experiment.fit()
        error, baseline = experiment.validate().tolist()
        if experiment.rank == 0:
            logger.info("epoch %d error %.4f (ridge trace %.2f)", epoch, error, baseline)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
