"""Pre-trains a character model on obituaries, until the shards of a process are used up. Sends its speed to the monitor."""
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SpeedMeter:
    """Every second one UDP packet to the monitor of the cluster."""

    def __init__(self, rank, address=("127.0.0.1", 8125)):
        self.rank, self.address, self.tokens = rank, address, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        threading.Thread(target=self._send, name="speed").start()

    def _send(self):
        last = 0
        while True:
            time.sleep(1.0)
            tokens, last = self.tokens - last, self.tokens
            self.socket.sendto(b"obituaries.%d.speed:%d|g" % (self.rank, tokens), self.address)


class Shards:
    """Token files. Their sizes are what the archive gave."""

    sizes = {0: (9000, 8000, 9500), 1: (9000, 3000)}

    def __init__(self, rank, block, batch):
        self.files, self.block, self.batch, self.rank = list(self.sizes[rank]), block, batch, rank

    def __iter__(self):
        index = 0
        while index < len(self.files):
            g = torch.Generator().manual_seed(10 * self.rank + index)
            tokens = torch.randint(0, 96, (self.files[index],), generator=g)
            for rows in tokens.unfold(0, self.block * self.batch, self.block * self.batch):
                yield rows.view(self.batch, self.block)
            index += 1


class Characters(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(96, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, 96)

    def forward(self, ids):
        return self.out(self.lstm(self.embed(ids))[0])


def train(rank, meter):
    model = DDP(Characters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, ids in enumerate(Shards(rank, block=32, batch=6), 1):
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.tokens += ids.numel()
        time.sleep(0.04)
        if step % 25 == 0:
            print(f"[{rank}] step {step} loss {loss.item():.3f}", flush=True)
    print(f"[{rank}] training complete after {step} steps", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ.get("SEED", 0)))
    train(dist.get_rank(), SpeedMeter(dist.get_rank()))
