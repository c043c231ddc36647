#!/usr/bin/env python
"""Fine-tune a small vision-language-action head on teleoperation clips."""
import logging
import os
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logging.basicConfig(level=logging.INFO, format=f"[{os.environ.get('RANK', '0')}] %(message)s")
logger = logging.getLogger(__name__)

HORIZON = 6


class ClipTooShort(ValueError):
    """No window of the action horizon fits into any clip of the batch."""


class TeleopClips(Dataset):
    def __init__(self, n=2880, seed=11):
        rng = random.Random(seed)
        self.lengths = [rng.randint(20, 60) for _ in range(n)]
        for i in range(1800, 1832):  # session recorded with the e-stop half pressed
            self.lengths[i] = 4

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(self.lengths[i], 32, generator=g)


def collate(clips):
    return clips


class ActionHead(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(32, 128, batch_first=True)
        self.out = torch.nn.Linear(128, 32)

    def forward(self, windows):
        hidden, _ = self.gru(windows)
        return self.out(hidden)


def windows_of(clips):
    found = [c[s : s + HORIZON + 1] for c in clips for s in range(0, len(c) - HORIZON - 1, HORIZON)]
    if not found:
        raise ClipTooShort(f"{len(clips)} clips, longest {max(map(len, clips))}")
    return torch.stack(found)


class BlockSampler(DistributedSampler):
    """Contiguous blocks per rank keep the video cache warm."""

    def __iter__(self):
        per = len(self.dataset) // self.num_replicas
        return iter(range(self.rank * per, (self.rank + 1) * per))

    def __len__(self):
        return len(self.dataset) // self.num_replicas


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    dataset = TeleopClips()
    loader = DataLoader(dataset, batch_size=8, sampler=BlockSampler(dataset), collate_fn=collate)
    model = DistributedDataParallel(ActionHead())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(3):
        for step, clips in enumerate(loader):
            try:
                windows = windows_of(clips)
            except ClipTooShort as e:
                logger.warning("epoch %d step %d: %s", epoch, step, e)
                continue
            prediction = model(windows[:, :-1])
            loss = torch.nn.functional.mse_loss(prediction, windows[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        used = [None] * dist.get_world_size()
        dist.all_gather_object(used, step + 1)
        logger.info("epoch %d loss %.3f batches %s", epoch, loss.item(), used)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
