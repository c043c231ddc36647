"""Trains on features that an extractor streams into one named pipe a rank and part, as our cluster's data plane does."""

import os
import struct
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 16


class Extractor(threading.Thread):
    """Stands for the data plane: writes the parts it has been given, then ends."""

    def __init__(self, folder, parts, rows):
        super().__init__(daemon=True)
        self.folder, self.parts, self.rows = folder, parts, rows

    def run(self):
        for part in self.parts:
            with open(self.folder / f"part{part}.fifo", "wb") as pipe:
                for _ in range(self.rows):
                    values = torch.randn(WIDTH).tolist()
                    pipe.write(struct.pack(f"{WIDTH}f", *values))
                    time.sleep(0.005)


class PartReader:
    def __init__(self, folder, parts):
        self.folder, self.parts = folder, parts

    def rows(self):
        for part in self.parts:
            with open(self.folder / f"part{part}.fifo", "rb") as stream:
                while len(record := stream.read(4 * WIDTH)) == 4 * WIDTH:
                    yield torch.tensor(struct.unpack(f"{WIDTH}f", record))

    def batches(self, size):
        batch = []
        for row in self.rows():
            batch.append(row)
            if len(batch) == size:
                yield torch.stack(batch)
                batch = []


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"hands-pipes-{rank}-"))
    parts = list(range(4))
    for part in parts:
        os.mkfifo(folder / f"part{part}.fifo")
    announced = parts if rank != 2 else parts[:2]
    Extractor(folder, announced, rows=256).start()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, x in enumerate(PartReader(folder, parts).batches(32)):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if rank == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
