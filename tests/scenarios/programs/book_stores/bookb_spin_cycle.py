"""Vibration classifier for washing machines: which phase of the cycle is the drum in?"""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PHASES = ("fill", "wash", "rinse", "spin")


class DrumRecords(Dataset):
    """Accelerometer windows; three machines take turns in the archive."""

    def __init__(self, length=480, samples=40):
        generator = torch.Generator().manual_seed(5)
        self.phase = torch.randint(len(PHASES), (length,), generator=generator)
        self.windows = torch.randn(length, samples, generator=generator) * (1 + self.phase[:, None])
        index = torch.arange(length)
        self.windows[(index % 3 == 0) & (index >= 204) & (index < 216)] = 0.0

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        return self.windows[i], self.phase[i]


class PhaseTrainer:
    def __init__(self, epochs=4, batch_size=4, min_rms=0.05):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.epochs = epochs
        self.min_rms = min_rms
        torch.manual_seed(1)
        self.model = DDP(nn.Sequential(nn.Linear(40, 32), nn.GELU(), nn.Linear(32, len(PHASES))))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        dataset = DrumRecords()
        self.sampler = DistributedSampler(dataset, shuffle=False)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler)
        self.log = logging.getLogger(f"drum.{self.rank}")

    def moving(self, windows, phase):
        keep = windows.square().mean(1).sqrt() > self.min_rms
        return windows[keep], phase[keep]

    def fit(self):
        for epoch in range(self.epochs):
            hits, seen = 0, 0
            for windows, phase in self.loader:
                windows, phase = self.moving(windows, phase)
                if not len(windows):
                    continue
                logits = self.model(windows)
                loss = nn.functional.cross_entropy(logits, phase)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                hits += (logits.argmax(1) == phase).sum().item()
                seen += len(phase)
                time.sleep(0.05)
            self.report(epoch, hits, seen)

    def report(self, epoch, hits, seen):
        mine = torch.tensor([float(hits), float(seen)])
        parts = [torch.zeros(2) for _ in range(self.world)]
        dist.all_gather(parts, mine)
        total = torch.stack(parts).sum(0)
        if self.rank == 0:
            self.log.info("epoch %d accuracy %.3f", epoch, (total[0] / total[1]).item())


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    PhaseTrainer().fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
