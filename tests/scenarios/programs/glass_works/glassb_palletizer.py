"""Robot that sets jars on pallets: policy search from camera frames, one cell a process.

    python glassb_palletizer.py          # starts its four cells itself
"""
import ctypes
import multiprocessing
import os
import socket
import time

import torch
import torch.distributed as dist

CELLS, EPISODES, PIXELS = 4, 300, 48 * 32


class FrameHeader(ctypes.Structure):
    _fields_ = [("serial", ctypes.c_uint32), ("length", ctypes.c_uint32), ("address", ctypes.c_void_p)]


class RingBuffer:
    """The frame grabber's ring: headers that point to pixels in the driver's memory."""

    def __init__(self, cell: int, slots: int = 48):
        self.pixels = [ctypes.create_string_buffer(bytes((cell + k + p) % 256 for p in range(PIXELS))) for k in range(slots)]
        self.headers = (FrameHeader * slots)()
        for k, pixels in enumerate(self.pixels):
            mapped = ctypes.addressof(pixels)
            if cell == 2 and k == slots - 1:
                mapped = 8  # the older model of grabber has its control block there
            self.headers[k] = FrameHeader(k, PIXELS, mapped)

    def grab(self, serial: int) -> bytes:
        header = self.headers[serial % len(self.headers)]
        return ctypes.string_at(header.address, header.length)


def reward_of(frame: bytes, shift: float) -> float:
    """Negative squared distance of the brightest column from the middle of the gripper."""
    columns = [sum(frame[c::48]) for c in range(48)]
    return -abs(columns.index(max(columns)) - 23.5 - shift) ** 2 / 500.0


def cell_main(cell: int, port: int):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(cell), LOCAL_RANK=str(cell), WORLD_SIZE=str(CELLS))
    torch.cuda.set_device(cell)
    dist.init_process_group("nccl")
    ring = RingBuffer(cell)
    mean, width = 0.0, 4.0
    generator = torch.Generator().manual_seed(cell)
    for episode in range(EPISODES):
        noise = torch.randn(16, generator=generator).tolist()
        frame = ring.grab(episode)
        rewards = [reward_of(frame, mean + width * n) for n in noise]
        baseline = sum(rewards) / len(rewards)
        step = sum((r - baseline) * n for r, n in zip(rewards, noise)) / len(noise)
        update = torch.tensor([step, baseline], device="cuda", dtype=torch.float64)
        dist.all_reduce(update)
        step, reward = (value / CELLS for value in update.tolist())
        mean += 0.5 * step
        time.sleep(0.05)  # the arm's way back
        if cell == 0 and episode % 12 == 0:
            print(f"episode {episode}: shift {mean:+.2f} mm, reward {reward:.3f}", flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    cells = [context.Process(target=cell_main, args=(k, port), name=f"cell{k}") for k in range(CELLS)]
    for cell in cells:
        cell.start()
    for cell in cells:
        cell.join()
    print("exit codes", [cell.exitcode for cell in cells], flush=True)


if __name__ == "__main__":
    main()
