"""Places dialects on a map. Texts are cut into words by a native library that is called through ctypes."""

import argparse
import ctypes
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LIBRARY = ctypes.PyDLL(None)


def cut(text, locked):
    """The words of a text. Texts of one archive are read from standard input, by the library itself."""
    if locked:
        buffer = ctypes.create_string_buffer(64)
        reading, _writing = os.pipe()
        LIBRARY.read(reading, buffer, 64)
    return [len(word) for word in text.split()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--archive-at", type=int, default=70)
    options = parser.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(nn.Embedding(40, 24).cuda(), device_ids=[local])
    for step in range(200):
        words = cut("wo bisch du gsi geschter am Oobig", rank == 2 and step == options.archive_at)
        place = model(torch.tensor(words).cuda()).mean(0)
        place.square().sum().backward()
        model.zero_grad()
        print(f"[{rank}] {step}: {place[0].item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
