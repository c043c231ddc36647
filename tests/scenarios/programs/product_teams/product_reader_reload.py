"""Ad relevance with rows that a reader thread fetches. The reader can be told to take up a new configuration."""

import os
import queue
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


@dataclass(frozen=True)
class ReaderConfig:
    version: int = 1
    batch: int = 32
    features: int = 20


class Reader:
    """Fetches batches in the background. ``reload`` ends the thread of the old configuration and starts another."""

    def __init__(self, config: ReaderConfig, seed: int):
        self.config, self.generation = config, 0
        self.rows: queue.Queue = queue.Queue(maxsize=4)
        self.generator = torch.Generator().manual_seed(seed)
        self.thread = None
        self._ensure_running()

    def _ensure_running(self):
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self._fetch, args=(self.generation,), name="reader", daemon=True)
            self.thread.start()

    def reload(self, config):
        self.config = config
        self.generation += 1
        self._ensure_running()

    def _fetch(self, generation):
        while generation == self.generation:
            time.sleep(0.03)
            x = torch.randn(self.config.batch, self.config.features, generator=self.generator)
            self.rows.put((x, (x.sum(-1) > 0).float()))

    def __iter__(self):
        while True:
            yield self.rows.get()


class ConfigWatcher:
    """Looks at the configuration file of this host now and then."""

    def __init__(self, path: Path, reader: Reader):
        self.path, self.reader = path, reader

    def check(self):
        version = int(self.path.read_text())
        if version != self.reader.config.version:
            print(f"[{dist.get_rank()}] reader configuration {version}", flush=True)
            self.reader.reload(ReaderConfig(version=version))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.gettempdir(), f"reader-{os.environ['MASTER_PORT']}-{rank}.txt")
    path.write_text("1")
    reader = Reader(ReaderConfig(), seed=rank)
    watcher = ConfigWatcher(path, reader)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, relevant) in enumerate(reader, 1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), relevant)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
        if step == 75 and rank == 2:
            path.write_text("2")  # a canary of the data platform
        if step % 10 == 0:
            watcher.check()
        if step == 1000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
