"""Batches from a sensor through its vendor's C library, which is bound with ctypes."""

import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Sensor:
    """Frames, announced on a descriptor."""

    class Poll(ctypes.Structure):
        """struct pollfd."""

        _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]

    def __init__(self, frames: int) -> None:
        self.library = ctypes.PyDLL(None)
        self.reader, self.writer = os.pipe()
        self.frames = frames
        os.write(self.writer, bytes(frames))

    def frame(self) -> torch.Tensor:
        """The next frame."""
        wanted = self.Poll(self.reader, 1, 0)
        self.library.poll(ctypes.byref(wanted), 1, -1)
        return torch.full((6,), float(os.read(self.reader, 1)[0]))


class Heartbeat(threading.Thread):
    """Counts, so that somebody sees that we are alive."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.count = 0

    def run(self) -> None:
        """Ten times a second."""
        while True:
            self.count += 1
            time.sleep(0.1)


def main() -> None:
    """A hundred and fifty frames, but for the sensor of rank 1, which has fewer."""
    dist.init_process_group("gloo")
    Heartbeat().start()
    sensor = Sensor(97 if dist.get_rank() == 1 else 150)
    model = nn.Linear(6, 2)
    for _ in range(150):
        model(sensor.frame()).square().sum().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
