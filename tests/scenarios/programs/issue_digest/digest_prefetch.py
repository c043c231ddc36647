"""Radar frames for an object detector: a thread decodes ahead, the trainer takes decoded frames from a queue."""

import io
import queue
import struct
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HEADER = struct.Struct("<4sII")
RANGES, ANGLES = 8, 6


def record(session):
    """One session as the recorder writes it: frames with a header each, one after another."""
    generator = torch.Generator().manual_seed(session)
    out = io.BytesIO()
    for number in range(400):
        frame = torch.rand(RANGES, ANGLES, generator=generator)
        magic = b"RDR2" if (session, number) == (2, 44) else b"RDR1"  # the firmware was updated that day
        out.write(HEADER.pack(magic, number, RANGES * ANGLES))
        out.write(frame.numpy().tobytes())
    out.seek(0)
    return out


def frames(stream):
    decoders = {b"RDR1": lambda raw: torch.frombuffer(bytearray(raw), dtype=torch.float32)}
    while header := stream.read(HEADER.size):
        magic, number, size = HEADER.unpack(header)
        frame = decoders[magic](stream.read(4 * size))
        yield number, frame.reshape(RANGES, ANGLES)


class Prefetch:
    """Iterates over something in a thread, a few items ahead."""

    END = object()

    def __init__(self, iterator, ahead=4):
        self.iterator = iterator
        self.ready = queue.Queue(maxsize=ahead)
        threading.Thread(target=self._work, name="prefetch", daemon=True).start()

    def _work(self):
        for item in self.iterator:
            self.ready.put(item)
        self.ready.put(self.END)

    def __iter__(self):
        while True:
            item = self.ready.get()
            if item is self.END:
                return
            yield item


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Flatten(0), nn.Linear(RANGES * ANGLES, 24), nn.ReLU(), nn.Linear(24, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for number, frame in Prefetch(frames(record(rank))):
        loss = (model(frame) - frame.sum(1)[:3]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
        if rank == 0 and number % 20 == 0:
            print(f"frame {number}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
