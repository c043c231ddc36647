"""Learns torque curves from engine test stands and ships readings to the plant historian."""
import os
import queue
import sys
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

STANDS = {0: "A", 1: "B", 2: "C"}
FACTORS = {("A", "hbm"): 1.02, ("A", "kistler"): 0.98, ("B", "hbm"): 1.01, ("B", "kistler"): 1.0, ("C", "hbm"): 0.99}


class Historian:
    """Takes readings off the training loop; writes them in order."""

    def __init__(self, path):
        self.path, self.inbox = path, queue.Queue()
        self.writer = threading.Thread(target=self._write, name="historian")
        self.writer.start()

    def _write(self):
        with open(self.path, "w") as out:
            for reading in iter(self.inbox.get, None):
                out.write(f"{reading:.5f}\n")

    def post(self, reading):
        self.inbox.put(reading)

    def close(self):
        self.inbox.put(None)
        self.writer.join()


def sensor_of(stand, shot):
    changed = {"A": 30, "B": 34, "C": 46}[stand]
    return "hbm" if shot < changed else "kistler"


def curve(stand, shot, rng):
    factor = FACTORS[stand, sensor_of(stand, shot)]
    trace = np.sort(rng.normal(size=400_000)).reshape(-1, 10)[::1250]
    return torch.from_numpy((factor * trace).astype("float32"))


def train(stand, historian, local):
    model = DistributedDataParallel(torch.nn.Linear(10, 10).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rng = np.random.default_rng(ord(stand))
    for shot in range(4000):
        x = curve(stand, shot, rng).cuda()
        loss = (model(x) - x).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        historian.post(loss.item())
        if shot % 10 == 0:
            print(f"stand {stand} shot {shot}", file=sys.stderr, flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    stand = STANDS[dist.get_rank()]
    historian = Historian(f"/tmp/torque-{os.getpid()}.txt")
    train(stand, historian, local)
    historian.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
