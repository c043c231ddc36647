"""Ice temperature model of four rinks, trained from the loggers' own text files."""
import logging
import os
import pathlib
import queue
import random
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("rinks")
RINKS = ["olympia", "seehalle", "westpark", "bergstadion"]
CONFIG = {"rows_per_batch": 10, "batches": 120, "depth": 3, "restarts": {"bergstadion": [415]}}


def write_logger_file(folder, rink):
    """The logger's memory card: one line a minute, and a line feed of its own when it restarts."""
    path = pathlib.Path(folder, f"{rink}.log")
    rng = random.Random(rink)
    with path.open("w") as card:
        for minute in range(CONFIG["rows_per_batch"] * CONFIG["batches"]):
            if minute in CONFIG["restarts"].get(rink, ()):
                card.write("\n")
            ice = -4.5 + rng.gauss(0, 0.2)
            card.write(f"{minute};{ice:.3f};{-11 + rng.gauss(0, 0.4):.3f};{rng.random():.3f}\n")
    return path


class CardReader(threading.Thread):
    def __init__(self, path, depth):
        super().__init__(name=f"card-{path.stem}", daemon=True)
        self.path, self.batches = path, queue.Queue(maxsize=depth)

    def run(self):
        rows = []
        with self.path.open() as card:
            while True:
                line = card.readline().strip()
                if not line:
                    return
                rows.append([float(v) for v in line.split(";")[1:]])
                if len(rows) == CONFIG["rows_per_batch"]:
                    time.sleep(0.07)  # resampling to the hall's clock
                    self.batches.put(torch.tensor(rows))
                    rows = []


def batches_of(reader, count):
    for _ in range(count):
        yield reader.batches.get()


def train(rink, folder, local):
    reader = CardReader(write_logger_file(folder, rink), CONFIG["depth"])
    reader.start()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for number, rows in enumerate(batches_of(reader, CONFIG["batches"])):
        rows = rows.cuda()
        error = model(rows[:, 1:]) - rows[:, :1]
        loss = error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 5 == 0:
            log.info("%s %4d %s", rink, number, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    with tempfile.TemporaryDirectory() as cards:
        train(RINKS[dist.get_rank()], cards, local_rank)
    dist.destroy_process_group()
