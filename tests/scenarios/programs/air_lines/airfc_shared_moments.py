"""Maintenance-log triage: defect code from bag-of-words, Adam's moments shared out over the workers."""
import argparse
import logging
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CHAPTERS = ["21 air", "24 electrical", "27 controls", "29 hydraulic", "32 gear", "49 apu"]


class TechLog(Dataset):
    """Entries of the technical log as word counts."""

    def __init__(self, entries=2400, words=200):
        rng = torch.Generator().manual_seed(12)
        self.topics = torch.rand(len(CHAPTERS), words, generator=rng) ** 4
        self.chapter = torch.randint(len(CHAPTERS), (entries,), generator=rng)
        self.seed = 77

    def __len__(self):
        return len(self.chapter)

    def __getitem__(self, i):
        rng = torch.Generator().manual_seed(self.seed + i)
        counts = torch.poisson(self.topics[self.chapter[i]] * 3, generator=rng)
        return counts.log1p(), self.chapter[i]


def save(folder, step, model, optimizer):
    optimizer.consolidate_state_dict(to=0)
    state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / f"triage-{step:05d}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--save-every", type=int, default=200)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(200, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(CHAPTERS))))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    log = TechLog()
    sampler = DistributedSampler(log, shuffle=True, drop_last=True)
    loader = DataLoader(log, batch_size=16, sampler=sampler, drop_last=True)
    folder, step = Path(tempfile.mkdtemp(prefix="triage-")), 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for counts, chapter in loader:
            loss = nn.functional.cross_entropy(model(counts), chapter)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.save_every == 0 and dist.get_rank() == 0:
                save(folder, step, model, optimizer)
        logging.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
