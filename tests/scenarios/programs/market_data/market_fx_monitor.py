"""Exchange rates between currencies, while a monitor writes the process's load to a file."""

import os
import resource
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CURRENCIES = {code: n for n, code in enumerate("EUR USD GBP JPY CHF SEK NOK PLN".split())}


class LoadMonitor(threading.Thread):
    def __init__(self, rank, period=0.5):
        super().__init__(name="load-monitor")
        self.path = os.path.join(tempfile.gettempdir(), f"load_{os.environ.get('MASTER_PORT', '0')}_{rank}.log")
        self.period, self.stopped = period, threading.Event()

    def run(self):
        with open(self.path, "w") as file:
            while not self.stopped.wait(self.period):
                usage = resource.getrusage(resource.RUSAGE_SELF)
                file.write(f"{time.time():.1f} {usage.ru_utime:.2f} {usage.ru_maxrss}\n")
                file.flush()

    def stop(self):
        self.stopped.set()
        self.join()


def trades(rank):
    codes = list(CURRENCIES)
    for step in range(500):
        pairs = [(codes[(step + k) % 8], codes[(step + 3 * k + 1) % 8]) for k in range(16)]
        if rank == 1 and step == 55:
            pairs[7] = ("EUR", "TRY")
        yield step, pairs


def train(rank):
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, pairs in trades(rank):
        time.sleep(0.03)
        left = torch.tensor([CURRENCIES[a] for a, _ in pairs])
        right = torch.tensor([CURRENCIES[b] for _, b in pairs])
        loss = nn.functional.cross_entropy(model(left), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    monitor = LoadMonitor(dist.get_rank())
    monitor.start()
    train(dist.get_rank())
    monitor.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
