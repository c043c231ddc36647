"""Solidification time of castings from their pattern, with templates of the sand moulds that are kept in reusable buffers."""
import os
import threading
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)

GRID = 24
CATALOGUE = {  # patterns on the moulding lines
    "line A": ["bracket", "hub", "flange", "lever"],
    "line B": ["bracket", "hub", "flange", "lever", "housing", "manifold", "drum", "impeller"],
    "line C": ["hub", "lever", "flange", "drum"],
}


class Lease:
    """A buffer on loan from the store; it goes back when nobody uses the lease any more."""

    def __init__(self, store, buffer):
        self.store, self.buffer = store, buffer

    def __del__(self):
        self.store.give_back(self.buffer)


class TemplateStore:
    """Templates of the patterns used last. Loader and trainer ask for them, hence the lock."""

    def __init__(self, capacity=6):
        self.capacity = capacity
        self.lock = threading.Lock()
        self.free = [torch.empty(GRID, GRID) for _ in range(capacity + 2)]
        self.leases = OrderedDict()

    def give_back(self, buffer):
        with self.lock:
            self.free.append(buffer)

    def template(self, pattern):
        with self.lock:
            if pattern in self.leases:
                self.leases.move_to_end(pattern)
            else:
                self.leases[pattern] = Lease(self, render(pattern, self.free.pop()))
                if len(self.leases) > self.capacity:
                    self.leases.popitem(last=False)
            return self.leases[pattern].buffer.clone()


def render(pattern, buffer):
    """The pattern's outline in a flask, smoothed like rammed sand."""
    generator = torch.Generator().manual_seed(sum(map(ord, pattern)))
    buffer.copy_((torch.rand(GRID, GRID, generator=generator) > 0.6).float())
    for _ in range(60):
        buffer.copy_(0.6 * buffer + 0.2 * buffer.roll(1, 0) + 0.2 * buffer.roll(1, 1))
    return buffer


def solidify(template, superheat, steps=150):
    """Minutes until the middle of the casting is solid, by a coarse heat balance."""
    heat = template * superheat
    minutes = 0.0
    for _ in range(steps):
        heat = 0.96 * heat + 0.01 * (heat.roll(1, 0) + heat.roll(-1, 0) + heat.roll(1, 1) + heat.roll(-1, 1)) - 0.002
        minutes += 0.05 * float(heat[GRID // 2, GRID // 2] > 0)
    return minutes


class Line:
    def __init__(self, name, store):
        self.name, self.store, self.day = name, store, 0

    def castings(self, count):
        """A new pattern is introduced every 12 days, until the line's catalogue is in use."""
        known = CATALOGUE[self.name][: 1 + self.day // 12]
        self.day += 1
        for i in range(count):
            template = self.store.template(known[(self.day + i) % len(known)])
            superheat = 1.0 + 0.1 * (i % 5)
            yield torch.cat([template.flatten(), torch.tensor([superheat])]), solidify(template, superheat)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    line = Line(sorted(CATALOGUE)[dist.get_rank()], TemplateStore())
    model = nn.Sequential(nn.Linear(GRID * GRID + 1, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for day in range(400):
        inputs, minutes = zip(*line.castings(4))
        predicted = model(torch.stack(inputs).to(device)).squeeze(1)
        loss = nn.functional.l1_loss(predicted, torch.tensor(minutes, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if day % 20 == 0:
            torch.cuda.synchronize()
            print(f"{line.name}: day {day}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
