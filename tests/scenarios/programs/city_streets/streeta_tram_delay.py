"""Delays of trams at the next stop, from the operator's message log."""

import collections
import os
import queue
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

Message = collections.namedtuple("Message", "line stop second delay")
LINES = {0: ("1", "2", "9"), 1: ("4", "5", "12", "E")}


def messages(rank):
    """The log of a day as the operator exports it: line;stop;second of the day;delay."""
    g = torch.Generator().manual_seed(rank)
    for second in range(14400, 86400):
        line = LINES[rank][second % len(LINES[rank])]
        delay = f"{float(torch.randn(1, generator=g)) * 40 + 30:.1f}"
        if line == "E" and second > 15800 and second % 200 == 3:
            delay = "4:35"
        yield f"{line};{second % 31};{second};{delay}"


class Prefetch:
    def __init__(self, rows, size, ahead=6):
        self.ready = queue.Queue(ahead)
        self.rows, self.size = rows, size
        self.thread = threading.Thread(target=self.fill, name="prefetch", daemon=True)
        self.thread.start()

    @staticmethod
    def parse(row):
        line, stop, second, delay = row.split(";")
        return Message(hash(line) % 17, int(stop), int(second), float(delay))

    def fill(self):
        batch = []
        for row in self.rows:
            batch.append(self.parse(row))
            if len(batch) == self.size:
                self.ready.put(self.encode(batch))
                batch = []

    def encode(self, batch):
        x = torch.tensor([[m.line / 17, m.stop / 31, m.second / 86400] for m in batch])
        basis = torch.cat([(x * k).sin() for k in range(1, 9)], dim=1)
        for _ in range(60):
            basis = basis + 0.01 * (basis @ torch.eye(basis.shape[1]))
        return basis, torch.tensor([[m.delay] for m in batch])

    def __iter__(self):
        while True:
            batch = self.ready.get()
            if batch is None:
                return
            yield batch


def build(device):
    net = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    return DistributedDataParallel(net, device_ids=[device])


def fit(net, batches, device):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    pause = threading.Event()
    for number, (x, delay) in enumerate(batches):
        pause.wait(0.06)  # keeps to the share of the machine that the planning office has
        optimizer.zero_grad()
        loss = torch.nn.functional.huber_loss(net(x.to(device)), delay.to(device))
        loss.backward()
        optimizer.step()
        shown = loss.item()
        if number % 10 == 0:
            print(f"[{dist.get_rank()}] batch {number}: {shown:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    fit(build(device), Prefetch(messages(dist.get_rank()), size=32), device)
    dist.destroy_process_group()
