"""Epochs over aligned reads; the main process has a converter write the alignments of the next epoch meanwhile."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

CONVERTER = """
import sys
reads, verbose = int(sys.argv[1]), sys.argv[2] == "verbose"
for number in range(reads):
    if verbose:
        print(f"read {number:07d}: mate unmapped, CIGAR 10S90M, flag 73, mapping quality 0")
print("converted", reads)
"""


class Converter:
    """Runs the converter on a lane. Lanes with many unmapped mates are converted with warnings on."""

    UNMAPPED = {0: 0.01, 1: 0.02, 2: 0.01, 3: 0.31}

    def start(self, lane):
        level = "verbose" if self.UNMAPPED[lane % 4] > 0.2 else "quiet"
        command = [sys.executable, "-c", CONVERTER, "5000", level]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def finish(self):
        status = self.process.wait()
        if status:
            raise RuntimeError(f"converter failed with {status}")
        return self.process.stdout.read().splitlines()[-1]


def epoch(model, optimizer, generator, steps=16):
    for _ in range(steps):
        time.sleep(0.04)
        coverage = torch.rand(8, 25, generator=generator)
        variant = (coverage[:, 12] < 0.3).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(coverage).squeeze(1), variant)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(25, 25), nn.ReLU(), nn.Linear(25, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    converter = Converter()
    for lane in range(40):
        if rank == 0:
            converter.start(lane)
        loss = epoch(model, optimizer, generator)
        if rank == 0:
            print(f"lane {lane}: loss {loss:.3f}, {converter.finish()}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
