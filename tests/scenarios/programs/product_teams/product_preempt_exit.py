"""Matching of job offers on spot machines. A notice says when a machine goes; the worker then ends in good order."""

import json
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Uploader(threading.Thread):
    """Copies finished snapshots to the bucket, one after another."""

    def __init__(self, bucket: Path):
        super().__init__(name="uploader")
        self.bucket, self.pending = bucket, queue.Queue()
        bucket.mkdir(exist_ok=True)

    def run(self):
        while True:
            item = self.pending.get()
            if item is None:
                return
            step, state = item
            torch.save(state, self.bucket / f"step-{step}.pt")

    def close(self):
        self.pending.put(None)
        self.join()


class SpotNotice(threading.Thread):
    """Polls the metadata of the machine for a notice of its end."""

    def __init__(self, path: Path):
        super().__init__(name="spot-notice", daemon=True)
        self.path = path

    def run(self):
        start = time.monotonic()
        while True:
            if self.path.exists():
                notice = json.loads(self.path.read_text())
                if time.monotonic() - start > notice["after"]:
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
            time.sleep(0.2)


def end_in_good_order(signum, frame):
    print(f"[{os.environ['RANK']}] machine goes, leaving", flush=True)
    sys.exit(0)


def pairs(rank):
    g = torch.Generator().manual_seed(rank)
    while True:
        offer, profile = torch.randn(32, 16, generator=g), torch.randn(32, 16, generator=g)
        time.sleep(0.04)
        yield offer, profile


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir())
    metadata = folder / f"spot-{os.environ['MASTER_PORT']}-{rank}.json"
    if rank == 1:
        metadata.write_text(json.dumps({"action": "terminate", "after": 4.0}))
    signal.signal(signal.SIGTERM, end_in_good_order)
    uploader = Uploader(folder / f"bucket-{os.environ['MASTER_PORT']}-{rank}")
    uploader.start()
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (offer, profile) in enumerate(pairs(rank)):
        scores = model(offer) @ profile.T
        loss = nn.functional.cross_entropy(scores, torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            SpotNotice(metadata).start()
        if step % 25 == 24:
            uploader.pending.put((step, {k: v.clone() for k, v in model.module.state_dict().items()}))
        if step == 2000:
            break
    uploader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
