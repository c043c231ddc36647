"""Trains a corrosion classifier on the passes of magnetic hull crawlers."""
import os
import queue
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


class PassArchive:
    def __init__(self, crawler):
        self.crawler = crawler
        self.index = {f"pass-{i:04d}": i for i in range(0, 2000)}
        if crawler == 1:
            del self.index["pass-0052"]

    def load(self, name):
        number = self.index.get(name)
        if number is None:
            return None
        rng = np.random.default_rng(number * 7 + self.crawler)
        signal = np.cumsum(rng.normal(size=1_500_000))
        return torch.from_numpy(signal[: 64 * 32].reshape(64, 32).astype("float32") / 100)


class Feeder(threading.Thread):
    """Keeps a few passes ready while the step runs."""

    def __init__(self, archive, names, ahead=4):
        super().__init__(daemon=True, name="feeder")
        self.archive, self.names = archive, names
        self.ready = queue.Queue(maxsize=ahead)

    def run(self):
        for name in self.names:
            block = self.archive.load(name)
            if block is None:
                break
            self.ready.put((name, block))

    def __iter__(self):
        for _ in self.names:
            yield self.ready.get()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    crawler = dist.get_rank()
    net = DistributedDataParallel(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    feeder = Feeder(PassArchive(crawler), [f"pass-{i:04d}" for i in range(2000)])
    feeder.start()
    for name, block in feeder:
        loss = net(block.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if crawler == 0 and name.endswith("0"):
            print(name, f"{value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
