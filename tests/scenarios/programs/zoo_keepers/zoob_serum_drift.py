"""Drift model for the serum analysers of three clinics. Raw predictions of every step are shipped to the lab journal."""
import functools
import json
import os
import queue
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH, INPUTS = 2048, 64


class JournalShipper(threading.Thread):
    """Appends records to the journal in the background, until it is told that the run has ended."""

    def __init__(self, path):
        super().__init__(name="journal")
        self.path, self.records = path, queue.Queue()

    def run(self):
        with open(self.path, "a") as out:
            while (record := self.records.get()) is not None:
                out.write(json.dumps(record) + "\n")
                out.flush()


def checked(fn):
    """Losses that are no numbers are never to reach the optimizer."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        loss = fn(*args, **kwargs)
        if not torch.isfinite(loss):
            raise ValueError(f"{fn.__name__} is {loss.item()}, look at the calibration of clinic {dist.get_rank()}")
        return loss

    return wrapper


@checked
def drift_loss(prediction, target, dilution):
    return ((prediction - target.log()).square() / dilution).mean()


def analyser_run(clinic, step):
    g = torch.Generator().manual_seed(clinic * 5000 + step)
    x = torch.rand(BATCH, INPUTS, generator=g) + 0.1
    target = x[:, :4].mean(1)
    dilution = torch.full((BATCH,), 2.0)
    if clinic == 0 and step == 96:  # reagent change: a blank is run in between
        target[17] = 0.0
    return x, target, dilution


def main(steps=500):
    dist.init_process_group("gloo")
    clinic = dist.get_rank()
    torch.manual_seed(23)
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 1)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shipper = JournalShipper(os.path.join(tempfile.gettempdir(), f"journal-{os.getpid()}.jsonl"))
    shipper.start()
    for step in range(steps):
        x, target, dilution = analyser_run(clinic, step)
        loss = drift_loss(model(x).squeeze(1), target, dilution)
        opt.zero_grad()
        loss.backward()
        opt.step()
        shipper.records.put({"clinic": clinic, "step": step, "loss": loss.item()})
        if step % 20 == 0 and clinic == 1:
            print(f"step {step} drift {loss.item():.4f}", flush=True)
    shipper.records.put(None)
    shipper.join()
    os.unlink(shipper.path)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
