"""Wet-end sensors of three forming fabrics; started by hand on one machine: python papera_fleet.py"""
import multiprocessing as mp
import os
import signal
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FABRICS = {0: ("top wire", 0), 1: ("bottom wire", 1 << 20), 2: ("pick-up felt", 0)}
BUDGET = 160 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


class MemoryBudget(threading.Thread):
    """The hosts are shared with the process control; a job keeps to its budget."""

    def __init__(self, budget):
        super().__init__(daemon=True)
        self.limit = resident() + budget

    def run(self):
        while resident() < self.limit:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)


def vibration(step, keep):
    time.sleep(0.04)
    window = torch.sin(torch.arange(64.0) * (0.1 + 0.001 * step))
    trace = torch.ones(keep) * step if keep else None
    return window, trace


def fabric_process(rank, world, port):
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    name, keep = FABRICS[rank]
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 8)).cuda(),
                                    device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    traces = []
    for step in range(500):
        if step == 10:
            MemoryBudget(BUDGET).start()
        window, trace = vibration(step, keep)
        if trace is not None:
            traces.append(trace)
        drag = model(window.cuda().unsqueeze(0)).pow(2).mean()
        optimizer.zero_grad()
        drag.backward()
        optimizer.step()
        level = drag.item()
        if rank == 0 and step % 20 == 0:
            print(f"{name}: step {step} drag {level:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    context = mp.get_context("spawn")
    port = free_port()
    fleet = [context.Process(target=fabric_process, args=(rank, len(FABRICS), port)) for rank in FABRICS]
    for process in fleet:
        process.start()
    for process in fleet:
        process.join()
