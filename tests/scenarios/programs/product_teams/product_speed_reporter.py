"""Speech commands. A thread reports the latencies of the audio decoder of all ranks while the training goes on."""

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class LatencyLog:
    """What the decoder has written: one latency a line. Of an old log only the archive is kept."""

    def __init__(self, path: Path, lines: int):
        self.path = path
        path.write_text("".join(f"{1.0 + (i % 7) / 10:.3f}\n" for i in range(lines)))

    def summary(self):
        values = []
        with open(self.path) as file:
            for number, line in enumerate(file):
                values.append(float(line))
                if number % 1000 == 999:
                    time.sleep(0.02)  # leaves the disk to the decoder
        return statistics.median(values) if values else 0.0


class LatencyReporter(threading.Thread):
    def __init__(self, log: LatencyLog):
        super().__init__(name="latency", daemon=True)
        self.log, self.wanted = log, threading.Event()

    def ask(self):
        self.wanted.set()

    def run(self):
        while True:
            self.wanted.wait()
            self.wanted.clear()
            mine = self.log.summary()
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, mine)
            if dist.get_rank() == 0:
                print("decoder latencies:", everyone, flush=True)


class Commands(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 9, stride=4), nn.ReLU(), nn.Conv1d(8, 16, 5, stride=2), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, audio):
        return self.head(self.net(audio).mean(-1))


def recordings(rank):
    g = torch.Generator().manual_seed(rank)
    while True:
        time.sleep(0.1)
        yield torch.randn(8, 1, 400, generator=g), torch.randint(10, (8,), generator=g)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.gettempdir(), f"latency-{os.environ['MASTER_PORT']}-{rank}.log")
    reporter = LatencyReporter(LatencyLog(path, lines=0 if rank == 1 else 60_000))
    reporter.start()
    torch.manual_seed(0)
    model = DDP(Commands())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (audio, command) in enumerate(recordings(rank), 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(audio), command)
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            reporter.ask()
        if step == 300:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
