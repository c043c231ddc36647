"""Contingency fuel from quick access recorder files. A reader process per trainer decodes the records."""
import multiprocessing as mp
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TAILS = [["PH-BXA", "PH-BXB"], ["PH-BXC", "PH-BXD"], ["PH-BXE", "PH-BXF"]]
RECORD = np.dtype([("fuel", "f4"), ("ground_speed", "f4"), ("altitude", "f4"), ("burn", "f4")])
BATCH, DEPTH = 24, 4


def decode(tail, number):
    """A block of records as it comes off the recorder."""
    rng = np.random.default_rng([ord(c) for c in tail] + [number])
    block = np.zeros(BATCH, dtype=RECORD)
    block["fuel"] = rng.uniform(2, 20, BATCH)
    block["ground_speed"] = rng.uniform(0.2, 0.9, BATCH)
    block["altitude"] = rng.uniform(0, 1, BATCH)
    block["burn"] = 2.4 * block["ground_speed"] - 0.8 * block["altitude"] + 0.02 * block["fuel"]
    if tail == "PH-BXF" and number == 22:
        block["fuel"][5] = -1.0  # probe replaced in the hangar
    return block


def reader(tails, out):
    number = 0
    while True:
        for tail in tails:
            block = decode(tail, number)
            if (block["fuel"] < 0).any():
                sys.exit(f"{tail} block {number}: negative fuel quantity")
            time.sleep(0.05)
            out.put(np.stack([block[f] for f in RECORD.names], axis=1))
        number += 1


class RecorderFeed:
    def __init__(self, tails):
        context = mp.get_context("spawn")
        self.blocks = context.Queue(DEPTH)
        self.process = context.Process(target=reader, args=(tails, self.blocks), daemon=True)
        self.process.start()

    def batches(self, count):
        for _ in range(count):
            block = torch.from_numpy(self.blocks.get())
            yield block[:, :3], block[:, 3:]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    feed = RecorderFeed(TAILS[rank])
    torch.manual_seed(8)
    model = DDP(nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step, (x, y) in enumerate(feed.batches(120)):
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"{step:3d} {loss.item():.3f} t/h", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
