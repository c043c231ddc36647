"""Text similarity model for coursework. After each epoch an external checker compares the submissions."""
import logging
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKER = textwrap.dedent(
    """
    import itertools, sys
    texts = open(sys.argv[1]).read().splitlines()
    grams = [{t[i:i + 3] for i in range(len(t) - 2)} for t in texts]
    hits = 0
    for a, b in itertools.combinations(range(len(texts)), 2):
        overlap = len(grams[a] & grams[b]) / max(len(grams[a] | grams[b]), 1)
        if overlap > 0.1:
            hits += 1
            print(f"{a:04d} {b:04d} overlap {overlap:.3f} trigrams {len(grams[a])}/{len(grams[b])}")
    sys.exit(0 if hits else 3)
    """
)


class Checker:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="coursework-"))
        self.script = self.folder / "checker.py"
        self.script.write_text(CHECKER)

    def submissions(self, epoch):
        """More is handed in towards the end of term."""
        words = ["energy", "momentum", "field", "charge", "current", "mass", "force", "work"]
        g = torch.Generator().manual_seed(epoch)
        picks = torch.randint(0, len(words), (20 + 6 * epoch, 6), generator=g)
        return [" ".join(words[i] for i in row) for row in picks.tolist()]

    def check(self, epoch):
        path = self.folder / f"week{epoch}.txt"
        path.write_text("\n".join(self.submissions(epoch)))
        child = subprocess.Popen([sys.executable, str(self.script), str(path)], stdout=subprocess.PIPE, text=True)
        if child.wait() not in (0, 3):
            raise RuntimeError(f"checker failed on {path}")
        return [line.split() for line in child.stdout]


def make_loader(rank, world):
    g = torch.Generator().manual_seed(0)
    a = torch.randn(900, 50, generator=g)
    b = a + 0.5 * torch.randn(900, 50, generator=g)
    data = TensorDataset(a, b)
    return DataLoader(data, batch_size=10, sampler=DistributedSampler(data, world, rank, seed=3))


def contrastive(embed, a, b):
    x, y = embed(torch.cat([a, b])).chunk(2)
    similarity = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T
    return F.cross_entropy(similarity / 0.1, torch.arange(len(a)))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = make_loader(rank, world)
    embed = DDP(nn.Sequential(nn.Linear(50, 64), nn.ReLU(), nn.Linear(64, 32)))
    optimizer = torch.optim.Adam(embed.parameters(), lr=1e-3)
    checker = Checker() if rank == 0 else None
    for epoch in range(12):
        loader.sampler.set_epoch(epoch)
        for a, b in loader:
            loss = contrastive(embed, a, b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.01)
        if checker:
            pairs = checker.check(epoch)
            logging.info("epoch %d loss %.3f, %d similar pairs", epoch, loss.item(), len(pairs))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
