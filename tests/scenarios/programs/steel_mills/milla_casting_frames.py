"""Meniscus level from mould camera frames. The frame grabber's library hands out pointers; every process reads its own strand."""
import ctypes
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

STRANDS = 3
HEIGHT, WIDTH = 48, 32


class Grabber:
    """Ring of frames in native memory. `address(n)` is where frame n lies."""

    def __init__(self, strand, slots=8):
        self.strand = strand
        self.size = HEIGHT * WIDTH
        self.ring = [ctypes.create_string_buffer(self.size) for _ in range(slots)]
        self.triggered = set(range(0, 4000))
        if strand == 2:
            self.triggered -= set(range(450, 456))

    def address(self, number):
        if number not in self.triggered:
            return 0
        slot = self.ring[number % len(self.ring)]
        for row in range(HEIGHT):
            level = (row * 5 + number * 3 + self.strand * 11) % 255
            ctypes.memset(ctypes.addressof(slot) + row * WIDTH, level, WIDTH)
        return ctypes.addressof(slot)

    def frame(self, number):
        pixels = bytearray(self.size)
        ctypes.memmove((ctypes.c_char * self.size).from_buffer(pixels), self.address(number), self.size)
        return torch.frombuffer(pixels, dtype=torch.uint8).float().div_(255)


class LevelNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(HEIGHT * WIDTH, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU())
        self.level = nn.Linear(48, 1)

    def forward(self, frames):
        return self.level(self.features(frames)).squeeze(1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def strand_process(rank, port, sequences):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(STRANDS), LOCAL_RANK=str(rank))
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=STRANDS)
    grabber = Grabber(rank)
    model = DDP(LevelNet().cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for sequence in range(sequences):
        numbers = range(sequence, sequence + 24)
        frames = torch.stack([grabber.frame(n) for n in numbers])
        levels = frames.view(len(frames), HEIGHT, WIDTH).diff(dim=1).abs().sum((1, 2))
        loss = nn.functional.smooth_l1_loss(model(frames.cuda()), levels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0 and sequence % 30 == 0:
            print(f"sequence {sequence}: {value:.4f}", flush=True)
    dist.destroy_process_group()


def main():
    context = mp.get_context("spawn")
    port = free_port()
    strands = [context.Process(target=strand_process, args=(rank, port, 900), name=f"strand{rank}") for rank in range(STRANDS)]
    for strand in strands:
        strand.start()
    for strand in strands:
        strand.join()
    sys.exit(max(abs(strand.exitcode) for strand in strands))


if __name__ == "__main__":
    main()
