"""Trains with a meter: a thread gathers the throughput of all ranks while the main thread goes on."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Meter(threading.Thread):
    def __init__(self, device, counters_s):
        super().__init__(daemon=True)
        self.device, self.counters_s, self.ask = device, counters_s, threading.Event()
        self.samples = 0

    def run(self):
        torch.cuda.set_device(self.device)
        for counters_s in self.counters_s:
            self.ask.wait()
            self.ask.clear()
            time.sleep(counters_s)  # the device's own counters are slow to read at times
            mine = torch.tensor([float(self.samples)], device=self.device)
            everyone = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(everyone, mine)
            print(f"samples: {[int(one.item()) for one in everyone]}", flush=True)


def load(rows):
    """A batch, from a disk that takes its time."""
    time.sleep(0.4)
    return torch.randn(rows, 512)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    meter = Meter(device, [0.0, 0.0, 2.0, 0.0, 0.0] if rank == 2 else [0.0] * 5)
    meter.start()
    model = nn.Linear(512, 512).to(device)
    for step in range(16):
        if step % 3 == 2:
            meter.ask.set()
        batch = load(16).to(device)
        model(batch).square().mean().backward()
        meter.samples += len(batch)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        model.zero_grad()
        torch.cuda.synchronize()
        print(f"[{rank}] step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
