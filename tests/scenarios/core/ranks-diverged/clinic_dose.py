"""Prediction of radiotherapy dose from planning CTs, normalised scan by scan."""

import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

SCANS_PER_RANK, SIZE = 320, 48
CALIBRATION_PHANTOMS = {(1, 92), (1, 93)}  # air only, delivered with the clinical series


def read_scan(rank, number):
    if (rank, number) in CALIBRATION_PHANTOMS:
        return torch.full((1, SIZE, SIZE), -1000.0)
    generator = torch.Generator().manual_seed(rank * 10_000 + number)
    return torch.randn(1, SIZE, SIZE, generator=generator) * 300 - 200


def normalise(scan):
    return (scan - scan.mean()) / scan.std()


class DoseNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        blocks, channels = [], 1
        for dilation in (1, 2, 4):
            blocks += [nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation), nn.BatchNorm2d(width), nn.SiLU()]
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        return self.head(self.blocks(x))


class Planner:
    def __init__(self, rank, batch_size=4):
        self.rank, self.batch_size = rank, batch_size
        torch.manual_seed(3)
        self.model = DistributedDataParallel(DoseNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.rejected = 0

    def batches(self):
        for first in range(0, SCANS_PER_RANK, self.batch_size):
            scans = [normalise(read_scan(self.rank, first + i)) for i in range(self.batch_size)]
            ct = torch.stack(scans)
            yield ct, ct.clamp(-1, 1).cumsum(-1) / SIZE

    def epoch(self):
        history = []
        for number, (ct, dose) in enumerate(self.batches()):
            predicted = self.model(ct)
            loss = (predicted - dose).square().mean()
            if not torch.isfinite(loss):
                self.rejected += 1
                print(f"rank {self.rank}: batch {number} rejected, loss {float(loss)}", flush=True)
                continue
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            history.append(float(loss))
        return sum(history) / len(history)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    planner = Planner(dist.get_rank())
    for epoch in range(20):
        began = time.perf_counter()
        loss = planner.epoch()
        dist.barrier()
        if planner.rank == 0:
            print(f"epoch {epoch}: {loss:.4f} in {time.perf_counter() - began:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
