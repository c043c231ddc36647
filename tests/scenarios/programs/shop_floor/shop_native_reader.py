"""Sensor frames come from a decoder thread through a pipe, and are read straight into the tensor's memory by libc."""

import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, WIDTH = 16, 32
libc = ctypes.PyDLL(None, use_errno=True)
libc.read.restype = ctypes.c_ssize_t
libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]


class Decoder(threading.Thread):
    """Decodes recordings one after another. ``seek``: how long it takes to open the next one."""

    FRAMES = 110

    def __init__(self, fd: int, seed: int, seek: float) -> None:
        super().__init__(daemon=True, name="decoder")
        self.fd, self.seek = fd, seek
        self.generator = torch.Generator().manual_seed(seed)
        self.ahead = threading.Event()

    def run(self) -> None:
        while True:
            for number in range(self.FRAMES):
                data = torch.randn(BATCH, WIDTH, generator=self.generator).numpy().tobytes()
                while data:
                    data = data[os.write(self.fd, data) :]
                if number == 8:
                    self.ahead.set()
            time.sleep(self.seek)


class FrameReader:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.frame = torch.empty(BATCH, WIDTH)

    def next(self) -> torch.Tensor:
        address, left = self.frame.data_ptr(), self.frame.nbytes
        while left:
            got = libc.read(self.fd, address, left)
            if got <= 0:
                raise OSError(ctypes.get_errno(), "read")
            address, left = address + got, left - got
        return self.frame.clone()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reading, writing = os.pipe()
    decoder = Decoder(writing, seed=rank, seek=3.0 if rank == 1 else 0.0)
    decoder.start()
    decoder.ahead.wait()
    reader = FrameReader(reading)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, WIDTH)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5000):
        frame = reader.next()
        loss = nn.functional.mse_loss(model(frame), frame)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"{step}: {loss.item():.4f}", flush=True)
        time.sleep(0.03)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
