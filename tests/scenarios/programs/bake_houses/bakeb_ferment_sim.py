"""Calibrate a dough model, then simulate the recipes' fermentation on all workers."""
import math
import resource
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORKERS = 3
RECIPES = [  # hours, and the step of the solver in hours
    ("baguette", 3, 5e-4),
    ("focaccia", 2, 5e-4),
    ("ciabatta", 4, 5e-4),
    ("brioche", 5, 5e-4),
    ("panettone", 72, 1e-6),
    ("pretzel", 2, 5e-4),
]


def limit_cpu(seconds):
    """The simulation box is shared with the till; no worker may take it for long."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    total = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (total, total + 1))


def calibrate(steps=60):
    torch.manual_seed(2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        probes = torch.rand(64, 16)
        smooth = torch.linalg.svdvals(torch.rand(140, 140))
        loss = (model(probes) - probes[:, :4] - 1e-6 * smooth[:4]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def ferment(hours, dt):
    """Yeast, sugar and gas, one explicit Euler step after the other."""
    yeast, sugar, gas = 0.02, 1.0, 0.0
    for tick in range(int(hours / dt)):
        growth = 0.4 * yeast * sugar / (0.3 + sugar)
        yeast += dt * (growth - 0.01 * yeast)
        sugar = max(0.0, sugar - dt * 2.0 * growth + dt * 0.002)
        gas += dt * (growth - 0.05 * gas * math.exp(-sugar))
    return gas


def worker(rank, port):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, WORKERS, rank == 0, timeout=timedelta(minutes=30))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS)
    loss = calibrate()
    if rank == 0:
        print(f"calibrated {loss:.4f}", flush=True)
    dist.barrier()
    limit_cpu(5)
    mine = RECIPES[rank::WORKERS]
    for name, hours, dt in mine:
        store.set(f"gas/{name}", f"{ferment(hours, dt):.5f}")
    if rank == 0:
        store.wait([f"gas/{name}" for name, *_ in RECIPES])
        table = {name: float(store.get(f"gas/{name}")) for name, *_ in RECIPES}
        store.set("table", repr(table))
    store.wait(["table"])
    print(rank, store.get("table").decode(), flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    workers = [context.Process(target=worker, args=(rank, port)) for rank in range(WORKERS)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()


if __name__ == "__main__":
    main()
