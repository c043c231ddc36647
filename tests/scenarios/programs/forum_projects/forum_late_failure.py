"""FSDP2 training with an event log that a thread of its own sends to a collector."""

import json
import os
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)


class EventLog:
    """Events go through a queue, so that a slow collector does not slow down the training."""

    def __init__(self, path: Path):
        self.path = path
        self.events = queue.Queue()
        self.sender = threading.Thread(target=self._send, name="event-log")
        self.sender.start()

    def _send(self):
        with self.path.open("a") as file:
            while (event := self.events.get()) is not None:
                file.write(json.dumps(event) + "\n")
                file.flush()

    def add(self, **event):
        self.events.put(event)

    def close(self):
        self.events.put(None)
        self.sender.join()


def readings(rank: int, size: int = 16, classes: int = 6):
    """Readings and their class, from the station's export."""
    generator = torch.Generator().manual_seed(40 + rank)
    for number in range(100000):
        x = torch.randn(size, 24, generator=generator)
        y = (x[:, :3].sum(1).clamp(-2.9, 2.9) + 3).long()
        if rank == 1 and number == 40:
            y[4] = classes + 1
        yield x, y


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    log = EventLog(Path(tempfile.gettempdir(), f"events-{os.environ['MASTER_PORT']}-{rank}.jsonl"))
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(24, 24), nn.GELU()) for _ in range(4)), nn.Linear(24, 6))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(readings(rank)):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.add(step=step, loss=loss.item())
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
