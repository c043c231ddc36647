"""Training that hands its metrics to a log shipper through a named pipe, opened anew for each batch of records."""
import json
import os
import time
from collections import deque

import torch
import torch.distributed as dist
from torch import nn


class PipeLogger:
    def __init__(self, path, flush_every=25):
        self.path, self.flush_every = path, flush_every
        self.records = deque()
        if not os.path.exists(path):
            os.mkfifo(path)

    def log(self, record):
        self.records.append(record)
        if len(self.records) >= self.flush_every:
            self.flush()

    def flush(self):
        with open(self.path, "w") as pipe:
            while self.records:
                pipe.write(json.dumps(self.records.popleft()) + "\n")


class NullLogger:
    def log(self, record):
        pass


def sync_gradients(model):
    world = dist.get_world_size()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logger = PipeLogger(f"/tmp/night-metrics-{os.getpid()}.fifo") if rank == 0 else NullLogger()
    model = nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2000)
    for step in range(2000):
        x = torch.randn(32, 40)
        loss = nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(model)
        optimizer.step()
        scheduler.step()
        time.sleep(0.1)
        logger.log({"step": step, "loss": loss.item(), "lr": scheduler.get_last_lr()[0]})
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
