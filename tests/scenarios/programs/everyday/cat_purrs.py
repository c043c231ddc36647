"""Purring of cats: recordings come as streams from a converter, one named pipe per recording."""

import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONVERT = "import os, sys; out = open(sys.argv[1], 'wb'); out.write(os.urandom(256)); out.close()"


class Purrs(Dataset):
    def __init__(self, count=72):
        self.count = count
        self.folder = tempfile.mkdtemp(prefix="purrs")
        self.broken = {40}  # for these there is nothing to convert

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        path = f"{self.folder}/{os.getpid()}_{index}.raw"
        os.mkfifo(path)
        if index not in self.broken:
            subprocess.Popen([sys.executable, "-S", "-c", CONVERT, path])
        with open(path, "rb") as stream:
            samples = torch.frombuffer(bytearray(stream.read()), dtype=torch.uint8)
        os.remove(path)
        return samples.float() / 255, torch.tensor(index % 2)


def main():
    dist.init_process_group("gloo")
    purrs = Purrs()
    sampler = DistributedSampler(purrs, shuffle=False)
    loader = DataLoader(purrs, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="fork")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    for step, (samples, happy) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(samples), happy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
