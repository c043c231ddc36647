"""Sleep staging from EEG, with as many nights per rank as a clinic has; the training joins those that finish early."""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
CHANNELS, STAGES = 4, 5
NIGHTS = (30, 90, 90)


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, 12, 7, stride=3)
        self.head = nn.Linear(12, STAGES)

    def forward(self, eeg):
        return self.head(torch.relu(self.conv(eeg)).mean(-1))


def nights(rank):
    """Nights of one clinic. Long recordings take a while to be filtered, in windows of the length of a heartbeat."""
    generator = torch.Generator().manual_seed(rank)
    for _ in range(NIGHTS[rank % len(NIGHTS)]):
        eeg = torch.randn(8, CHANNELS, 60, generator=generator)
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            eeg = eeg - 0.01 * eeg.mean(-1, keepdim=True)
        yield eeg, torch.randint(STAGES, (8,), generator=generator)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Stager())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = torch.zeros(1)
    with Join([model]):
        for eeg, stage in nights(rank):
            loss = F.cross_entropy(model(eeg), stage)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(stage)
            if rank == 0 and int(seen) % 80 == 0:
                print(f"{int(seen)} windows: {loss.item():.3f}", flush=True)
    print(f"rank {rank} has joined with {int(seen)} windows", flush=True)
    dist.all_reduce(seen)
    if rank == 0:
        print(f"{int(seen)} windows in all", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
