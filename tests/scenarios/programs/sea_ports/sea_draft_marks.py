"""Draft survey: displacement from the six draft marks read off photographs."""
import json
import os
import queue
import random
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

HYDROSTATICS = {"handymax": 52.1, "panamax": 67.4, "capesize": 119.3, "kamsarmax": 71.0}
MARKS = ("fwd-p", "fwd-s", "mid-p", "mid-s", "aft-p", "aft-s")


class ResultBook:
    """Writes surveyed displacements to disk beside the training."""

    def __init__(self, path):
        self.path = Path(path)
        self.pages = queue.Queue()
        self.writer = threading.Thread(target=self._write, name="result-book")
        self.writer.start()

    def _write(self):
        with self.path.open("w") as book:
            while (page := self.pages.get()) is not None:
                book.write(json.dumps(page) + "\n")
                book.flush()

    def add(self, **page):
        self.pages.put(page)

    def close(self):
        self.pages.put(None)
        self.writer.join()


def surveys(surveyor, count):
    rng = random.Random(surveyor)
    classes = list(HYDROSTATICS)
    for number in range(count):
        vessel = rng.choice(classes)
        if surveyor == "S. Lindqvist" and number == 390:
            vessel = "newcastlemax"
        drafts = [9 + 3 * rng.random() for _ in MARKS]
        time.sleep(0.007)
        yield {"number": number, "class": vessel, "drafts": drafts}


def batches(surveyor, size=8, count=1200):
    batch = []
    for survey in surveys(surveyor, count):
        batch.append(survey)
        if len(batch) == size:
            yield batch
            batch = []


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    surveyor = ["A. Demir", "S. Lindqvist", "J. Okafor"][rank]
    book = ResultBook(Path(tempfile.mkdtemp(prefix="draft-")) / f"{rank}.jsonl")
    net = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1)).cuda()
    model = nn.parallel.DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step, batch in enumerate(batches(surveyor)):
        tpc = torch.tensor([HYDROSTATICS[s["class"]] for s in batch]).unsqueeze(1)
        drafts = torch.tensor([s["drafts"] for s in batch])
        displacement = drafts.mean(1, keepdim=True) * tpc
        loss = nn.functional.smooth_l1_loss(model(drafts.cuda()), displacement.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.add(step=step, loss=loss.item(), tonnes=displacement.mean().item())
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: mean {displacement.mean().item():.0f} t", flush=True)
    book.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
