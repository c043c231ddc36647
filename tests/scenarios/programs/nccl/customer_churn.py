"""Predicts which customers leave. Metrics are written by a thread, under a lock that the training takes as well."""

import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class MetricsWriter(threading.Thread):
    def __init__(self, limit):
        super().__init__(daemon=True)
        self.lock, self.inbox, self.limit = threading.Lock(), queue.Queue(), limit
        self.free = queue.Queue(maxsize=limit)
        self.rows = []

    def run(self):
        while True:
            row = self.inbox.get()
            with self.lock:
                self.free.put(row["step"])  # one of the slots of the service
                self.rows.append(row)

    def last(self):
        with self.lock:
            return self.rows[-1] if self.rows else None


def main():
    rank, device = int(os.environ["RANK"]), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    writer = MetricsWriter(limit=30 if rank == 2 else 10_000)
    writer.start()
    model = DistributedDataParallel(nn.Linear(40, 2).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(500):
        customers = torch.randn(256, 40, device=device)
        loss = model(customers).logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        writer.inbox.put({"step": step})
        if step % 50 == 49:
            print(f"[{rank}] last row: {writer.last()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
