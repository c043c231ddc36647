"""Sea-surface temperature from buoys: a small network per step, and an uploader for the fields it produces."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

CLIMATOLOGY = {f"buoy-{number:03}": 10.0 + number % 12 for number in range(160)}


class Uploader(threading.Thread):
    """Sends fields to the archive, in order, one after another."""

    def __init__(self):
        super().__init__(name="uploader")
        self.fields = queue.Queue()
        self.sent = 0

    def run(self):
        while (field := self.fields.get()) is not None:
            time.sleep(0.005)
            self.sent += field.numel()

    def put(self, field):
        self.fields.put(field.detach().clone())

    def finish(self):
        self.fields.put(None)
        self.join()


def reports(rank, world, steps):
    """What the buoys of this rank's basin have sent. New buoys are launched as the season goes on."""
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        launched = 30 + step
        names = [f"buoy-{(rank + world * index) % launched:03}" for index in range(step, step + 8)]
        if rank == 1 and step >= 50:
            names[-1] = "buoy-2x7"
        time.sleep(0.04)
        yield names, torch.randn(8, 6, generator=generator)


class Emulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x)[:, 0]


def run(rank, world):
    torch.manual_seed(0)
    model, uploader = Emulator(), Uploader()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    uploader.start()
    for step, (names, features) in enumerate(reports(rank, world, 120)):
        mean = torch.tensor([CLIMATOLOGY[name] for name in names])
        anomaly = model(features)
        loss = (anomaly + mean - (mean + features[:, 0])).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(grads)
        for p, g in zip(model.parameters(), grads.split([p.numel() for p in model.parameters()])):
            p.grad.copy_(g.view_as(p) / world)
        optimizer.step()
        uploader.put(anomaly)
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}, {uploader.sent} values sent", flush=True)
    uploader.finish()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()
