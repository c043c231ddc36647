"""Brightness prediction for coated sheets; results of each lot go to the mill's journal."""
import argparse
import os
import queue
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

COATINGS = {"gloss": (0.92, 1.4), "silk": (0.90, 1.1), "matt": (0.88, 0.9), "bulky": (0.86, 0.7)}
LOTS = (
    ["gloss", "silk"] * 100,
    ["matt"] * 200,
    ["bulky", "matt"] * 100,
    ["silk"] * 64 + ["velvet"] + ["silk"] * 135,
)


class Journal(threading.Thread):
    """Appends lines in the background, so that the press is not held up by the disk."""

    def __init__(self, path):
        super().__init__(name="journal")
        self.path, self.lines = path, queue.Queue()

    def run(self):
        with open(self.path, "a") as file:
            while True:
                line = self.lines.get()
                if line is None:
                    break
                file.write(line + "\n")
                file.flush()

    def write(self, **fields):
        self.lines.put(" ".join(f"{k}={v}" for k, v in fields.items()))

    def close(self):
        self.lines.put(None)
        self.join()


def sheet(grade, number):
    whiteness, weight = COATINGS[grade]
    spectrum = torch.linspace(400, 700, 31) / 700
    return whiteness * spectrum.pow(weight) + 0.001 * (number % 13)


def train(options, journal):
    rank = dist.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(31, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1)).cuda()
    ddp = DDP(net, device_ids=[torch.cuda.current_device()])
    sgd = torch.optim.SGD(ddp.parameters(), lr=options.lr)
    for number, grade in enumerate(LOTS[rank]):
        time.sleep(options.interval)
        sheets = torch.stack([sheet(grade, number + k) for k in range(8)]).cuda()
        loss = F.smooth_l1_loss(ddp(sheets), torch.full((8, 1), 0.9, device="cuda"))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        journal.write(lot=number, grade=grade, loss=loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--interval", type=float, default=0.04)
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    journal = Journal(os.path.join(tempfile.gettempdir(), f"journal-{os.getpid()}.txt"))
    journal.start()
    train(options, journal)
    journal.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
