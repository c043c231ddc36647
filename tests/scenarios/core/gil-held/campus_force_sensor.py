"""Grasping with a force sensor: frames come through a pipe from the driver, read with the vendor's C call."""

import ctypes
import os
import struct
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FRAME = struct.Struct("<6f")


class Driver:
    """Stands for the library of the vendor: its blocking read gives one frame."""

    def __init__(self) -> None:
        self.library = ctypes.PyDLL(None)
        self.output, self.input = os.pipe()
        self.buffer = ctypes.create_string_buffer(FRAME.size)

    def push(self, frame: torch.Tensor) -> None:
        os.write(self.input, FRAME.pack(*frame.tolist()))

    def frame(self) -> torch.Tensor:
        got = self.library.read(self.output, self.buffer, FRAME.size)
        if got != FRAME.size:
            raise OSError(f"short frame: {got} bytes")
        return torch.tensor(FRAME.unpack(self.buffer.raw))


def frames(gripper: int):
    rng = torch.Generator().manual_seed(gripper)
    while True:
        yield torch.randn(6, generator=rng)


def replay(driver: Driver, gripper: int, count: int) -> None:
    for _, frame in zip(range(count), frames(gripper)):
        driver.push(frame)


def live(driver: Driver, gripper: int, hertz: float) -> None:
    for frame in frames(gripper):
        driver.push(frame)
        time.sleep(1 / hertz)


def attach(gripper: int) -> Driver:
    """Grippers 0 and 2 replay a recording. Number 1 is on the table, and measures at its own pace."""
    driver = Driver()
    if gripper == 1:
        replay(driver, gripper, 160)  # what has been measured while the job was queued
        threading.Thread(target=live, args=(driver, gripper, 20), daemon=True).start()
    else:
        replay(driver, gripper, 2400)
    return driver


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gripper = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    driver = attach(gripper)
    for step in range(280):
        x = torch.stack([driver.frame() for _ in range(8)])
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.norm(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if gripper == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
        time.sleep(0.08)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
