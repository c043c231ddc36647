"""Trace header quality model. Reads packed headers straight from a mapped volume; starts its own processes."""
import ctypes
import multiprocessing as mp
import os
import socket
import struct
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

WORLD = 4
SAMPLES = 64
TRACES = 600
HEADER = struct.Struct("<q")  # where the samples of a trace start, from the beginning of the data block
DATA = SAMPLES * 2


def write_volume(inline):
    """An inline as the acquisition system leaves it; offsets are in the byte order of the recorder that was in use."""
    index = bytearray()
    for trace in range(TRACES):
        order = ">q" if inline == 1042 and trace == 450 else "<q"
        index += struct.pack(order, trace * DATA)
    gen = torch.Generator().manual_seed(inline)
    values = torch.randint(-2000, 2000, (TRACES * SAMPLES,), generator=gen, dtype=torch.int16)
    return bytes(index), bytes(values.view(torch.uint8).tolist())


class MappedInline:
    def __init__(self, inline):
        self.index, block = write_volume(inline)
        self.block = ctypes.create_string_buffer(block, len(block))
        self.base = ctypes.addressof(self.block)

    def trace(self, number):
        (start,) = HEADER.unpack_from(self.index, number * HEADER.size)
        raw = ctypes.string_at(self.base + start, DATA)
        return torch.frombuffer(bytearray(raw), dtype=torch.int16).float() / 2000


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for p in model.parameters():
        p.grad.copy_(flat[start:start + p.numel()].view_as(p))
        start += p.numel()


def process(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(SAMPLES, 20), nn.Tanh(), nn.Linear(20, SAMPLES)).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    inline = MappedInline(1040 + rank)
    for first in range(0, TRACES, 10):
        batch = torch.stack([inline.trace(first + i) for i in range(10)]).cuda()
        time.sleep(0.07)
        loss = (model(batch) - batch).square().mean()
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
        loss.item()
        if rank == 0 and first % 100 == 0:
            print(f"{first} traces", flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ctx = mp.get_context("spawn")
    workers = [ctx.Process(target=process, args=(rank, WORLD, port)) for rank in range(WORLD)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    sys.exit(max(abs(w.exitcode) for w in workers))


if __name__ == "__main__":
    main()
