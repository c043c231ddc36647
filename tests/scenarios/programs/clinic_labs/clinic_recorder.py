"""ICU time series: a recorder writes in the background, and a child process draws the calibration plot."""

import multiprocessing
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class Recorder:
    """Lines go to memory, and from there to a slow disk by a thread."""

    def __init__(self, path):
        self.path, self.lines = path, []
        self.lock = threading.Lock()
        self.wake = threading.Event()
        threading.Thread(target=self.drain, name="recorder", daemon=True).start()

    def log(self, text):
        with self.lock:
            self.lines.append(f"{time.time():.2f} {text}\n")

    def flush_soon(self):
        self.wake.set()

    def drain(self):
        while True:
            self.wake.wait()
            self.wake.clear()
            with self.lock, open(self.path, "a") as file:
                for line in self.lines[-30:]:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                    time.sleep(0.03)  # the share's limit
                self.lines.clear()


def draw(recorder, scores, path):
    recorder.log(f"drawing {len(scores)} points")
    with open(path, "w") as file:
        for number, score in enumerate(scores):
            file.write(f"{number} {'*' * int(20 * score)}\n")


def vitals(generator):
    series = torch.randn(16, 24, 12, generator=generator).cumsum(1)
    return series, (series[:, -1].mean(1) > 0).float()


class Ward(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 24, batch_first=True)
        self.risk = nn.Linear(24, 1)

    def forward(self, series):
        return self.risk(self.rnn(series)[0][:, -1]).squeeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stem = os.path.join(tempfile.gettempdir(), f"icu-{os.environ['MASTER_PORT']}-{rank}")
    recorder = Recorder(stem + ".log")
    torch.manual_seed(0)
    model = DistributedDataParallel(Ward())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    fork = multiprocessing.get_context("fork")
    for epoch in range(20):
        for step in range(30):
            series, died = vitals(generator)
            logits = model(series)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, died)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                recorder.log(f"{epoch}.{step} {float(loss):.4f}")
        if rank == 0 and epoch % 2 == 1:
            recorder.flush_soon()
            with torch.no_grad():
                scores = model.module(vitals(generator)[0]).sigmoid().sort().values.tolist()
            time.sleep(0.1)  # let the log get ahead
            plot = fork.Process(target=draw, args=(recorder, scores, stem + ".txt"))
            plot.start()
            plot.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
