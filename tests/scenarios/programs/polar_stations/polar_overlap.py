"""Ozone column retrieval. Two groups with a stream each: one for the gradients, one for the statistics of the inputs."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

WAVELENGTHS = 60


class Lane:
    """A process group and the stream on which it is used."""

    def __init__(self, name, priority):
        self.name, self.priority = name, priority
        self.group = dist.new_group()
        self.stream = torch.cuda.Stream()
        self.pending = []

    def put(self, tensor):
        self.pending.append(tensor)

    def flush(self):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for tensor in self.pending:
                dist.all_reduce(tensor, group=self.group)
        torch.cuda.current_stream().wait_stream(self.stream)
        self.pending.clear()


def flush_all(lanes):
    """The most urgent lane first."""
    for lane in sorted(lanes, key=lambda lane: -lane.priority):
        lane.flush()


def spectra(rank, hour):
    """Spectra of one hour, and how many of them were taken in twilight."""
    rng = torch.Generator().manual_seed(97 * rank + hour)
    twilight = 6 if (rank == 1 and hour % 40 == 39) else 1
    return torch.rand(8, WAVELENGTHS, generator=rng), twilight


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    gradients, statistics = Lane("gradients", 0.5), Lane("statistics", 0.0)
    model = nn.Sequential(nn.Linear(WAVELENGTHS, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hours = torch.zeros((), device="cuda")
    for hour in range(100):
        time.sleep(0.06)
        spectrum, twilight = spectra(rank, hour)
        spectrum = spectrum.cuda(non_blocking=True)
        optimizer.zero_grad()
        model(spectrum).square().mean().backward()
        for parameter in model.parameters():
            gradients.put(parameter.grad)
        statistics.put(torch.ones(4, WAVELENGTHS, device="cuda"))
        statistics.priority = twilight / 8  # stray light: the offsets are needed before anything else
        flush_all((gradients, statistics))
        optimizer.step()
        hours += 1
        if hour % 10 == 9:
            torch.cuda.synchronize()
            if rank == 0:
                print(f"{hours.item():.0f} hours", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
