"""Herd dynamics on several ranges; snapshots are packed and indexed in the background."""
import logging
import os
import tempfile
import threading
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("herds")


class SnapshotIndex:
    """Packs the aerial pictures of a range and exchanges the sizes for the common index."""

    def __init__(self, folder):
        self.folder, self.entries = folder, []

    def start(self, number, pictures):
        self.thread = threading.Thread(target=self.pack, args=(number, pictures), name=f"index-{number}", daemon=True)
        self.thread.start()

    def pack(self, number, pictures):
        size = 0
        with open(self.folder / f"pictures-{number}.z", "wb") as file:
            for picture in pictures:
                size += file.write(zlib.compress(picture, 9))
        sizes = [None] * dist.get_world_size()
        dist.all_gather_object(sizes, size)
        self.entries.append((number, sizes))

    def wait(self):
        self.thread.join()


class Saver:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.index = SnapshotIndex(self.folder)

    def save(self, number, model, pictures):
        self.index.start(number, pictures)
        self.write_states(number, model.module.state_dict())
        dist.barrier()
        self.index.wait()

    def write_states(self, number, states):
        """Small files, one per tensor, each flushed to the disk before the next."""
        for name, tensor in states.items():
            path = self.folder / f"{number}-{name}.pt"
            torch.save(tensor, path)
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            time.sleep(0.15)  # the disk is shared with the cameras


class Range:
    def __init__(self, rank):
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def survey(self, number):
        """Aerial pictures since the last survey: after the rains the herds of one range are on the move."""
        count = 240 if self.rank == 1 and number == 3 else 1
        return [os.urandom(1 << 19) for _ in range(count)]

    def transition(self):
        time.sleep(0.03)
        state = torch.randn(48, 10, generator=self.generator)
        return state, state.roll(1, dims=1) * 0.9 + 0.05


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(21)
    rank = dist.get_rank()
    range_, saver = Range(rank), Saver(tempfile.mkdtemp())
    model = DDP(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for season in range(1, 20):
        for _ in range(20):
            before, after = range_.transition()
            loss = nn.functional.huber_loss(model(before), after)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        saver.save(season, model, range_.survey(season))
        if rank == 0:
            log.info("season %d: loss %.4f, packed %s", season, loss.item(), saver.index.entries[-1][1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
