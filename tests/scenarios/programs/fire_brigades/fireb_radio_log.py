"""Radio log tagging: per-brigade logs, DDP, and an uploader for the tagged lines."""
import itertools
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CODES = {"10-4": 0, "10-20": 1, "10-70": 2, "10-73": 3, "10-99": 4}
CHATTER = ["10-4", "10-4", "10-20", "10-70", "10-4", "10-73"]


class Uploader(threading.Thread):
    def __init__(self, endpoint):
        super().__init__(name="uploader")
        self.endpoint = endpoint
        self.lines = queue.Queue()
        self.sent = 0

    def run(self):
        while True:
            item = self.lines.get()
            if item is None:
                return
            time.sleep(0.001)
            self.sent += 1


def radio(brigade):
    """Lines of one brigade's log, newest last."""
    spare = {0: {2903: "10-33"}}.get(brigade, {})
    for number, code in enumerate(itertools.cycle(CHATTER)):
        yield number, spare.get(number, code)


def encode(lines):
    targets = torch.tensor([CODES[code] for _, code in lines])
    features = torch.stack([torch.sin(torch.arange(16.0) * (CODES[c] + 1) + n % 5) for n, c in lines])
    return features, targets


class Tagger:
    def __init__(self):
        self.net = DDP(nn.Sequential(nn.Linear(16, 40), nn.ReLU(), nn.Linear(40, len(CODES))))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def step(self, features, targets):
        loss = nn.functional.cross_entropy(self.net(features), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    brigade = dist.get_rank()
    torch.manual_seed(6)
    tagger = Tagger()
    uploader = Uploader(f"logs/brigade{brigade}")
    uploader.start()
    log = radio(brigade)
    for step in range(6000):
        lines = list(itertools.islice(log, 16))
        time.sleep(0.012)
        loss = tagger.step(*encode(lines))
        uploader.lines.put((step, loss))
        if step % 60 == 0:
            print(f"brigade {brigade} step {step} loss {loss:.3f} sent {uploader.sent}", flush=True)
    uploader.lines.put(None)
    uploader.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
