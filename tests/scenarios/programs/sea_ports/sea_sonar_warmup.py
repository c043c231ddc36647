"""Fender damage from sonar sweeps: sweeps are beamformed in DataLoader workers, the first of a pier takes longest."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
PIERS = [("Burchardkai", 7.0), ("Predoehlkai", 13.0), ("Athabaskakai", 9.0)]


class Sweeps(Dataset):
    """`align` is the time that it takes to align the first sweep of a pier with the quay wall."""

    def __init__(self, pier, align, count):
        self.pier, self.align, self.count = pier, align, count

    def __len__(self):
        return self.count

    def beamform(self, signal, seconds):
        until = time.monotonic() + seconds
        while True:
            signal = torch.fft.ifft(torch.fft.fft(signal)).real
            signal = signal / signal.abs().max().clamp(min=1e-6)
            if time.monotonic() >= until:
                return signal

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        signal = torch.rand(64, generator=generator)
        return self.beamform(signal, self.align if index == 0 else 0.012), float(index % 2)


def epoch(model, optimizer, loader, pier):
    started = time.monotonic()
    for number, (sweeps, damaged) in enumerate(loader):
        if number == 0:
            print(f"{pier}: first sweeps after {time.monotonic() - started:.1f} s", flush=True)
        logits = model(sweeps.cuda()).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, damaged.float().cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    torch.set_num_threads(1)
    pier, align = PIERS[dist.get_rank()]
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)).cuda(), device_ids=[local]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    known = DataLoader(Sweeps("test basin", 0.1, 240), batch_size=6, num_workers=1)
    quay = DataLoader(Sweeps(pier, align, 240), batch_size=6, num_workers=1)
    epoch(model, optimizer, known, "test basin")
    epoch(model, optimizer, quay, pier)
    dist.barrier()
    dist.destroy_process_group()
    print(f"{pier}: finished", flush=True)


if __name__ == "__main__":
    main()
