"""Trains a drag model and publishes ephemerides from a background thread.

The publisher stages each rank's states to disk and then collects the file names, so that an index with all
of them can be written by rank 0.
"""
import json
import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

BLOCK = 1 << 16


class Publisher(threading.Thread):
    def __init__(self, folder, objects):
        super().__init__(name="publisher", daemon=True)
        self.folder = folder
        self.objects = objects
        self.jobs = queue.Queue()

    def submit(self, day, states):
        self.jobs.put((day, states))

    def stage(self, day, states):
        path = os.path.join(self.folder, f"oem_{day:03d}_{dist.get_rank()}.bin")
        with open(path, "wb") as target:
            data = states.numpy().tobytes()
            for start in range(0, len(data), BLOCK):
                target.write(data[start:start + BLOCK])
                target.flush()
                time.sleep(0.05)  # the disk is shared with the flight dynamics team
        return path

    def run(self):
        while True:
            day, states = self.jobs.get()
            path = self.stage(day, states)
            paths = [None] * dist.get_world_size()
            dist.all_gather_object(paths, path)
            if dist.get_rank() == 0:
                with open(os.path.join(self.folder, f"index_{day:03d}.json"), "w") as index:
                    json.dump(paths, index)


class DragModel(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.inner = nn.Linear(9, width)
        self.outer = nn.Linear(width, 1)

    def forward(self, x):
        return self.outer(torch.sin(self.inner(x)))


def propagate(states, steps):
    """Two-body propagation with a fixed step, in units of the reference orbit."""
    for _ in range(steps):
        radius = states[:, :3].norm(dim=1, keepdim=True).clamp_min(0.2)
        states[:, 3:] -= 0.001 * states[:, :3] / radius**3
        states[:, :3] += 0.001 * states[:, 3:]
    return states


def train_day(model, optimizer, generator):
    for _ in range(60):
        x = torch.randn(4000, 9, generator=generator)
        loss = (model(x).squeeze(1) - x[:, 0] * x[:, 1].cos()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        offset = 0
        for p in model.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p) / dist.get_world_size())
            offset += p.numel()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    objects = [1500, 260000, 2200][rank]  # tracked objects of this rank's regime
    folder = os.path.join(os.getcwd(), "ephemerides")
    os.makedirs(folder, exist_ok=True)
    publisher = Publisher(folder, objects)
    publisher.start()
    torch.manual_seed(0)
    model = DragModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    states = torch.randn(2000, 6, generator=generator)
    for day in range(12):
        value = train_day(model, optimizer, generator)
        if rank == 0:
            print(f"day {day}: loss {value:.4f}", flush=True)
        if day % 4 == 3:
            publisher.submit(day, torch.randn(objects, 6, generator=generator))
        states = propagate(states, 10000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
