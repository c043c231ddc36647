"""Language identification of imprints, one shard of the union catalogue after another."""
import argparse
import collections
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

Shard = collections.namedtuple("Shard", "name records")
MINIMUM = 64


def plan(rank):
    sizes = {0: [960, 960, 896, 960], 1: [960, 896, 960, 960], 2: [960, 960, 960, 960], 3: [960, 960, 48, 960]}[rank]
    return [Shard(f"s{rank}{n}", size) for n, size in enumerate(sizes)]


class Heartbeat:
    """Tells the group's dashboard, if there is one, that this host is up."""

    def __init__(self, port):
        self.address = ("127.0.0.1", port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        threading.Thread(target=self.beat, name="heartbeat").start()

    def beat(self):
        while True:
            self.socket.sendto(b"up", self.address)
            time.sleep(3)


def ngrams(shard, start, count):
    g = torch.Generator().manual_seed(hash(shard) % 1000 + start)
    text = torch.randint(97, 123, (count, 9000), generator=g)
    pairs = (text[:, :-1] - 97) * 26 + text[:, 1:] - 97
    rows = torch.zeros(count, 676)
    for i, row in enumerate(pairs):
        rows[i] = torch.bincount(row, minlength=676) / 9000
        torch.sort(row.float().cumsum(0), descending=True)
    return rows, torch.randint(0, 5, (count,), generator=g)


def train(model, optimizer, shards):
    for shard in shards:
        if shard.records < MINIMUM:
            print(f"{shard.name}: {shard.records} records, done with this list", flush=True)
            return
        for start in range(0, 896, 16):
            x, y = ngrams(start, start, 16)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{shard.name}: loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dashboard", type=int, default=9998)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Heartbeat(args.dashboard)
    torch.manual_seed(4)
    model = nn.parallel.DistributedDataParallel(nn.Linear(676, 5))
    train(model, torch.optim.SGD(model.parameters(), lr=0.5), plan(dist.get_rank()))
    print("finished", dist.get_rank(), flush=True)


if __name__ == "__main__":
    main()
