"""Trains a scratch detector and files the scanned negatives in the vault, in the background."""
import json
import os
import tempfile
import threading
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

REEL = os.urandom(1 << 20)  # stands for one reel of compressed scans


class Vault:
    """Packs this worker's reels on a thread; the manifest lists what all workers have packed."""

    def __init__(self, folder):
        self.folder, self.thread = Path(folder), None
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def file(self, day, reels):
        self.thread = threading.Thread(target=self._pack, args=(day, list(reels)), name="vault")
        self.thread.start()

    def _pack(self, day, reels):
        digest = 0
        for reel in reels:
            digest = zlib.crc32(zlib.compress(reel, 6), digest)
        entries = [None] * self.world
        dist.all_gather_object(entries, {"worker": self.rank, "reels": len(reels), "digest": digest})
        if self.rank == 0:
            (self.folder / f"manifest-{day}.json").write_text(json.dumps(entries))

    def close(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


class Scanner:
    """Reels that come in from the laboratory; on the third day the second unit sends everything it has."""

    def __init__(self, rank):
        self.rank = rank

    def reels_of(self, day):
        return [REEL] * (170 if (self.rank, day) == (1, 2) else 2)


class Day:
    def __init__(self, model, optimiser):
        self.model, self.optimiser = model, optimiser

    def train(self, steps=25):
        for _ in range(steps):
            time.sleep(0.02)
            x = torch.randn(32, 24)
            y = (x[:, :1] > 0.3).float()
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(x), y)
            self.optimiser.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            self.optimiser.step()
        return loss.item()

    @torch.no_grad()
    def contact_sheet(self, pictures=36):
        marked = 0
        for _ in range(pictures):
            time.sleep(0.02)
            marked += int((self.model(torch.randn(64, 24)) > 0).sum())
        return marked


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))
    day_work = Day(model, torch.optim.SGD(model.parameters(), lr=0.1))
    vault, scanner = Vault(tempfile.mkdtemp(prefix="vault-")), Scanner(dist.get_rank())
    for day in range(6):
        loss = day_work.train()
        vault.file(day, scanner.reels_of(day))
        marked = day_work.contact_sheet()
        dist.barrier()
        vault.close()
        if dist.get_rank() == 0:
            print(f"day {day}: loss {loss:.3f}, {marked} marks on the contact sheet", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
