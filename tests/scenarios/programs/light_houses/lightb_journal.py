"""Learns dimmer curves from a console's DMX stream, and journals what the console sent for the show's insurance."""
import gzip
import json
import os
import random
import signal
import tempfile
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class Journal:
    """Append-only record of universes, written out every now and then."""

    def __init__(self, path, period=None):
        self.path = path
        self.guard = threading.Lock()
        self.blocks = []
        self.flushed = 0
        self.period = period
        if period:
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, 2.5)

    def append(self, universe):
        text = json.dumps(universe).encode()
        with self.guard:
            self.blocks.append(gzip.compress(text, compresslevel=9))
            if len(self.blocks) > 5000:
                del self.blocks[:1000]

    def flush(self):
        with self.guard:
            with open(self.path, "ab") as file:
                for block in self.blocks:
                    file.write(block)
            self.flushed += len(self.blocks)
            self.blocks.clear()

    def _on_alarm(self, number, frame):
        self.flush()
        signal.setitimer(signal.ITIMER_REAL, self.period)

    def close(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.flush()


class Console:
    def __init__(self, seed):
        self.source = random.Random(seed)
        self.levels = [0] * 512

    def tick(self):
        history = []
        for _ in range(12):
            for _ in range(160):
                self.levels[self.source.randrange(512)] = self.source.randrange(256)
            history.append(list(self.levels))
        return history


class Curve(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(512, 32)
        self.decode = nn.Linear(32, 512)

    def forward(self, levels):
        return self.decode(torch.sigmoid(self.encode(levels)))


def main():
    torch.set_num_threads(1)
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    console = Console(seed=60 + device)
    folder = tempfile.mkdtemp(prefix="journal")
    model = DistributedDataParallel(Curve().cuda(), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    # the second console is the one on the insurance papers
    journal = Journal(f"{folder}/universe-{device}.gz", period=0.2 if device == 1 else None)
    for frame in range(6000):
        history = console.tick()
        journal.append(history)
        levels = torch.tensor(history, dtype=torch.float32).div_(255).cuda()
        loss = (model(levels) - levels).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error = loss.item()
        if frame % 100 == 0:
            print(f"console {device} frame {frame} error {error:.3f} journal {journal.flushed}", flush=True)
    journal.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
