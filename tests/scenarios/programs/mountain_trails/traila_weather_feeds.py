"""Temperature-lapse regression for three mountain ranges. Starts its own workers: python traila_weather_feeds.py"""
import multiprocessing as mp
import os
import random
import signal
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORKERS = 3
BULLETINS = {0: "morning", 90: "noon"}
STEPS = 4000


class Feed:
    """Station readings of one range; the observatory sends a full table, or says that nothing has changed."""

    def __init__(self, name, unchanged_at=()):
        self.name = name
        self.unchanged_at = set(unchanged_at)
        self.last = None

    def poll(self, bulletin):
        if bulletin in self.unchanged_at:
            return None
        rng = random.Random(f"{self.name}/{bulletin}")
        return [(rng.uniform(500, 4200), rng.gauss(0, 6)) for _ in range(64)]

    def readings(self, bulletin, patience=2):
        signal.alarm(patience)  # some observatories answer late
        table = self.poll(bulletin)
        if table is None:
            return self.last
        signal.alarm(0)
        self.last = torch.tensor(table)
        return self.last


FEEDS = [Feed("Hohe Tauern"), Feed("Bernina", unchanged_at=["noon"]), Feed("Mont Blanc")]


def lapse(table, step):
    z = torch.linspace(500, 4200, 1024)[:, None] - table[:, 0]
    kernel = torch.exp(-((z + step) / 300.0) ** 2)
    for _ in range(60):
        kernel = kernel * 0.98 + 0.01 * (kernel.roll(1, 0) + kernel.roll(-1, 0))
    weights = kernel / kernel.sum(1, keepdim=True).clamp_min(1e-6)
    return weights, weights @ table[:, 1:]


def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(WORKERS))
    torch.backends.cudnn.enabled = False
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    feed = FEEDS[rank]
    model = DistributedDataParallel(nn.Linear(64, 1).cuda(rank), device_ids=[rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    table = None
    for step in range(STEPS):
        if step in BULLETINS:
            table = feed.readings(BULLETINS[step])
        x, y = lapse(table, step)
        loss = nn.functional.l1_loss(model(x.cuda()), y.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss = loss.item()
        if step % 200 == 0:
            print(f"{feed.name}: step {step}, loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    workers = [context.Process(target=work, args=(rank, port)) for rank in range(WORKERS)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


if __name__ == "__main__":
    main()
