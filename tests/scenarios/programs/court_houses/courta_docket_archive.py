"""Trains a court-level classifier and archives what was read, docket by docket, in the background."""

import json
import pathlib
import queue
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LEVELS = {"DC": 0, "CA": 1, "SC": 2, "TX": 3}


class Archivist(threading.Thread):
    """Writes one line per docket. The archive has to be complete, so the program waits for it at its end."""

    def __init__(self, path):
        super().__init__(name="archivist")
        self.path = path
        self.pending = queue.Queue()

    def run(self):
        with open(self.path, "w", encoding="utf-8") as out:
            for record in iter(self.pending.get, None):
                out.write(json.dumps(record) + "\n")
                out.flush()

    def close(self):
        self.pending.put(None)
        self.join()


class Registry:
    def __init__(self, rank):
        self.rank = rank

    def docket(self, number):
        codes = ["DC", "DC", "CA", "DC", "SC", "TX"]
        code = codes[(number + self.rank) % 6]
        if self.rank == 2 and number == 209:
            code = "IP"  # intellectual property division, opened in May
        return f"{code}-{self.rank}{number:04d}"

    def batch(self, number):
        names = [self.docket(number * 4 + i) for i in range(4)]
        vectors = torch.randn(4, 12, generator=torch.Generator().manual_seed(number))
        return names, vectors


class Session:
    def __init__(self, folder):
        self.rank = dist.get_rank()
        self.registry = Registry(self.rank)
        self.archivist = Archivist(pathlib.Path(folder, f"dockets-{self.rank}.jsonl"))
        torch.manual_seed(1)
        self.model = DDP(nn.Linear(12, len(LEVELS)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, number):
        names, vectors = self.registry.batch(number)
        labels = torch.tensor([LEVELS[name.split("-")[0]] for name in names])
        loss = nn.functional.cross_entropy(self.model(vectors), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for name in names:
            self.archivist.pending.put({"docket": name, "loss": round(loss.item(), 4)})
        time.sleep(0.06)
        return loss.item()

    def run(self, steps):
        self.archivist.start()
        for number in range(steps):
            loss = self.step(number)
            if number % 20 == 19 and self.rank == 0:
                print(f"step {number + 1}: loss {loss:.3f}", flush=True)
        self.archivist.close()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Session(tempfile.mkdtemp(prefix="dockets-")).run(120)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
