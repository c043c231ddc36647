"""Remaining useful life of engines from vibration logs; metrics go to the fleet desk in the background."""
import json
import math
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

ENGINES = {0: ["CFM-204", "CFM-207"], 1: ["LEAP-019", "LEAP-022"]}


class DeskUploader:
    """Collects metrics and hands them to the fleet desk's spool, in order."""

    def __init__(self):
        self.pending = queue.Queue()
        self.sent = 0
        self.thread = threading.Thread(target=self._pump, name="desk-uploader")
        self.thread.start()

    def _pump(self):
        while True:
            item = self.pending.get()
            if item is None:
                return
            json.dumps(item)
            self.sent += 1

    def log(self, **values):
        self.pending.put(values)

    def close(self):
        self.pending.put(None)
        self.thread.join()


class VibrationLog:
    def __init__(self, engines, seed):
        self.engines = engines
        self.g = torch.Generator().manual_seed(seed)

    def window(self, step):
        engine = self.engines[step % len(self.engines)]
        spectrum = torch.rand(20, 16, generator=self.g)
        life = 900 * (1 - spectrum[:, :4].mean(1))
        if engine == "LEAP-022" and step == 45:
            spectrum[3, 5] = math.inf  # the sensor was changed on that day
        time.sleep(0.06)
        return engine, spectrum, life / 900


def validate_loss(loss, engine):
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss of {engine} is {loss.item()}")


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at: at + p.numel()].view_as(p))
        at += p.numel()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(21)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    source = VibrationLog(ENGINES[rank], seed=60 + rank)
    desk = DeskUploader()
    for step in range(90):
        engine, spectrum, life = source.window(step)
        loss = nn.functional.mse_loss(model(spectrum).squeeze(1), life)
        validate_loss(loss, engine)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world)
        optimizer.step()
        desk.log(step=step, engine=engine, loss=loss.item())
        if rank == 0 and step % 15 == 0:
            print(f"step {step}: {engine} {loss.item():.4f}", flush=True)
    desk.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
