"""Learns a simulated world and keeps all of its states; every process writes its own shards of the archive."""
import json
import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class World:
    """Game of life on a torus, many at once."""

    def __init__(self, seed, worlds=48, side=48):
        generator = torch.Generator().manual_seed(seed)
        self.cells = (torch.rand(worlds, 1, side, side, generator=generator) < 0.3).float()
        self.kernel = torch.ones(1, 1, 3, 3)
        self.kernel[0, 0, 1, 1] = 0

    def step(self):
        padded = nn.functional.pad(self.cells, (1, 1, 1, 1), mode="circular")
        around = nn.functional.conv2d(padded, self.kernel)
        before = self.cells
        self.cells = ((around == 3) | ((around == 2) & (before == 1))).float()
        return before, self.cells


class Archive:
    """Shards are written at the pace that the shared disk allows each process: two a second."""

    PACE_S = 0.5

    def __init__(self, folder, rank):
        self.folder, self.rank = Path(folder), rank
        self.states = []

    def keep(self, cells):
        self.states.append(cells.to(torch.uint8))

    def write(self, name, shards=28):
        everything = torch.stack(self.states).flatten()
        due = time.monotonic()
        index = []
        for number, part in enumerate(everything.chunk(shards)):
            path = self.folder / f"{name}-{self.rank}-{number:03d}.z"
            with open(path, "wb") as out:
                out.write(zlib.compress(part.numpy().tobytes(), 6))
                out.flush()
                os.fsync(out.fileno())
            index.append({"file": path.name, "bytes": path.stat().st_size})
            due += self.PACE_S
            time.sleep(max(0.0, due - time.monotonic()))
        (self.folder / f"{name}-{self.rank}.json").write_text(json.dumps(index))
        self.states.clear()
        return sum(part["bytes"] for part in index)


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(2)
        rule = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Conv2d(12, 1, 1)
        )
        self.model = nn.parallel.DistributedDataParallel(rule)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.world = World(self.rank)
        folder = [tempfile.mkdtemp(prefix="world-")]
        dist.broadcast_object_list(folder, src=0)
        self.archive = Archive(folder[0], self.rank)

    def phase(self, name, steps):
        for step in range(steps):
            before, after = self.world.step()
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(before), after)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.archive.keep(after)
            if self.rank == 0 and step % 20 == 0:
                print(f"{name} step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer()
    trainer.phase("first", 60)
    written = trainer.archive.write("first")
    dist.barrier()
    print(f"rank {trainer.rank}: {written} bytes", flush=True)
    trainer.phase("second", 30)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
