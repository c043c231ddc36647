"""Gate assignment policy. Snapshots are written by a saver thread while the holdout day is scored."""
import hashlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

GATES, FEATURES = 12, 18
HISTORY = {0: 8, 1: 260, 2: 8}  # blocks of assignment history per terminal


class Saver:
    """Writes the terminal's history and agrees on a manifest, off the training thread."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self.running = None

    def submit(self, day, history):
        self.finish()
        self.running = self.pool.submit(self._write, day, history)

    def _write(self, day, history):
        digest = hashlib.sha256()
        path = self.folder / f"day{day}.bin"
        with open(path, "wb") as f:
            for block in history:
                data = block.numpy().tobytes()
                digest.update(data)
                f.write(data)
                time.sleep(0.015)  # the disk is shared with the tower's recorder
        manifest = [None] * dist.get_world_size()
        dist.all_gather_object(manifest, {"file": path.name, "sha": digest.hexdigest()})
        return manifest

    def finish(self):
        if self.running is not None:
            self.running.result()
            self.running = None


class GateDay:
    def __init__(self, rank):
        self.g = torch.Generator().manual_seed(500 + rank)

    def wave(self):
        x = torch.randn(16, FEATURES, generator=self.g)
        time.sleep(0.04)
        return x, x[:, :GATES].argmax(1)


def train_day(model, optimizer, day, waves=60):
    for _ in range(waves):
        x, gate = day.wave()
        loss = nn.functional.cross_entropy(model(x), gate)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def score(net, waves=24):
    holdout = GateDay(99)
    hits = [(net(x).argmax(1) == gate).float().mean().item() for x, gate in (holdout.wave() for _ in range(waves))]
    return sum(hits) / len(hits)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    model = DDP(nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, GATES)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    saver = Saver(tempfile.mkdtemp(prefix="gates-"))
    history = [torch.randint(0, GATES, (2048,)) for _ in range(HISTORY[rank])]
    day = GateDay(rank)
    for number in range(4):
        loss = train_day(model, optimizer, day)
        saver.submit(number, history)
        accuracy = score(model.module)
        dist.barrier()
        if rank == 0:
            print(f"day {number}: loss {loss:.3f}, holdout {accuracy:.2f}", flush=True)
    saver.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
