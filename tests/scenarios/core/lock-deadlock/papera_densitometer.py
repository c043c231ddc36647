"""Colour register on two presses. A densitometer keeps a table of solid densities fresh while the model trains."""
import itertools
import os
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as Replicated

torch.backends.cudnn.enabled = False

DEVICES = {
    "D-07": {"period": 0.05, "replies": None},
    "D-19": {"period": 0.05, "replies": 80},
}


class Densitometer:
    """Reader of one serial head; a head answers each request with four densities."""

    def __init__(self, name):
        self.name = name
        self.period, self.replies = DEVICES[name]["period"], DEVICES[name]["replies"]
        self.requests = itertools.count(1)

    def read(self):
        request = next(self.requests)
        if request == self.replies:
            raise TimeoutError(f"{self.name}: no reply to request {request}")
        return [1.40 + 0.002 * ((request + ink) % 9) for ink in range(4)]


class DensityTable:
    def __init__(self, head):
        self.head = head
        self.guard = threading.Lock()
        self.solid = [1.4] * 4
        self.silent = 0
        threading.Thread(target=self._refresh, name=head.name, daemon=True).start()

    def _refresh(self):
        while True:
            time.sleep(self.head.period)
            try:
                self.guard.acquire()
                self.solid = self.head.read()
                self.guard.release()
            except TimeoutError:
                self.silent += 1

    def target(self):
        with self.guard:
            return torch.tensor(self.solid)


class Register(torch.nn.Module):
    def __init__(self, marks=20):
        super().__init__()
        self.keys = torch.nn.Linear(marks, 30)
        self.inks = torch.nn.Linear(30, 4)

    def forward(self, marks):
        return self.inks(torch.tanh(self.keys(marks)))


def train(table, sheets):
    model = Replicated(Register().cuda(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    for number in range(sheets):
        time.sleep(0.03)
        marks = torch.sin(torch.arange(20.0) + 0.2 * number)
        error = (model(marks.cuda()) - table.target().cuda()).abs().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        yield number, error.item()


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    head = Densitometer(list(DEVICES)[dist.get_rank()])
    for number, error in train(DensityTable(head), sheets=600):
        if number % 25 == 0:
            print(f"press {head.name} sheet {number} error {error:.4f}", flush=True)
    dist.destroy_process_group()
