"""Trains a vessel-type model from packed AIS frames; starts its own workers, one per receiver."""
import ctypes
import os
import socket
import struct

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

RECEIVERS = ["fastnet", "mizen", "tuskar"]
FRAME = 168
HEADER = struct.Struct("<QI")  # offset of the payload, number of frames


def tape(receiver, minute):
    """One minute of recorded frames with an index in front, as the receivers deliver it."""
    frames = 24
    body = bytes((minute * 31 + k * 7 + receiver) % 256 for k in range(frames * FRAME))
    offset = HEADER.size
    if receiver == 2 and minute == 200:
        # this receiver's index carries the tape's generation in its upper bits after a roll-over
        offset |= 1 << 46
    return HEADER.pack(offset, frames) + body


class FrameReader:
    """Reads frames straight out of the buffer, without copying it first."""

    def __init__(self, data):
        self.buffer = ctypes.create_string_buffer(data, len(data))
        self.base = ctypes.addressof(self.buffer)

    def frames(self):
        offset, count = HEADER.unpack(ctypes.string_at(self.base, HEADER.size))
        for n in range(count):
            yield ctypes.string_at(self.base + offset + n * FRAME, FRAME)


def batch(receiver, minute):
    rows = [torch.tensor(list(frame), dtype=torch.float32) for frame in FrameReader(tape(receiver, minute)).frames()]
    x = torch.stack(rows) / 255
    return x, (x.sum(dim=1) > FRAME / 2).long()


def worker(rank, world, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DDP(nn.Sequential(nn.Linear(FRAME, 64), nn.ReLU(), nn.Linear(64, 2)).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for minute in range(600):
        x, y = batch(rank, minute)
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0 and minute % 15 == 0:
            print(f"minute {minute}: {value:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    context = mp.get_context("spawn")
    port = free_port()
    crew = [
        context.Process(target=worker, args=(rank, len(RECEIVERS), port), name=name)
        for rank, name in enumerate(RECEIVERS)
    ]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    print("receivers done:", [process.exitcode for process in crew])


if __name__ == "__main__":
    main()
