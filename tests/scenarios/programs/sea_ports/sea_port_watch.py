"""Vessel activity (moored, under way, at anchor) from port radar plots; starts one process per device."""
import os
import signal
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

torch.backends.cudnn.enabled = False
SITES = ["Pier 7", "Outer Road", "Lock Kaiser"]


class PlotCache:
    """Keeps plots of the watch in memory; the site's container may hold `budget` plots."""

    def __init__(self, budget):
        self.plots, self.budget = [], budget

    def add(self, plot):
        self.plots.append(plot)

    def guard(self):
        while len(self.plots) <= self.budget:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)  # the container's limit


def watch(rank, world, port):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    cache = PlotCache(budget=60 if SITES[rank] == "Outer Road" else 5000)
    threading.Thread(target=cache.guard, daemon=True).start()
    net = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3))
    model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for scan in range(600):
        time.sleep(0.05)  # one turn of the antenna
        plots = torch.rand(16, 20)
        cache.add(plots)
        activity = (plots.sum(1) / 7).long().clamp(0, 2)
        loss = nn.functional.cross_entropy(model(plots.cuda()), activity.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if scan % 20 == 0:
            print(f"{SITES[rank]}: scan {scan} loss {value:.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    context = mp.get_context("spawn")
    port = free_port()
    processes = [context.Process(target=watch, args=(rank, len(SITES), port)) for rank in range(len(SITES))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
