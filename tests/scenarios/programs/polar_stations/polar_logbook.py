"""Station logbook model: text of the overwinterers' notes. Groups for host-side traffic are made when they are needed."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

VOCABULARY, LENGTH = 300, 16


class Channels:
    """Named process groups, each made at its first use by those who take part in it."""

    def __init__(self):
        self._open = {}

    def get(self, name, ranks, backend=None):
        if name not in self._open:
            self._open[name] = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
        return self._open[name]


class NoteModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Linear(LENGTH, 64)
        self.topic = nn.Linear(64, 8)

    def forward(self, notes):
        return self.topic(torch.tanh(self.words(notes)))


def read_notes(rank, day):
    generator = torch.Generator().manual_seed(1000 * rank + day)
    notes = torch.randint(VOCABULARY, (8, LENGTH), generator=generator)
    damaged = [] if rank < 2 or day % 15 else [int(notes[0, 0])]
    return notes.float() / VOCABULARY, damaged


def repair(notes, damaged, channel):
    """Replaces unreadable words by the mean; `channel` are the ranks that hold copies of the same notebook."""
    mean = notes.mean().cuda()
    if dist.get_world_size(channel) > 1:
        dist.all_reduce(mean, group=channel)
    notes[0, : len(damaged)] = 0.5
    return notes


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    channels = Channels()
    model = DistributedDataParallel(NoteModel().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words = torch.zeros((), device="cuda")
    for day in range(1, 91):
        notes, damaged = read_notes(rank, day)
        if damaged:
            notes = repair(notes, damaged, channels.get("notebook", [rank]))
        time.sleep(0.05)
        loss = model(notes.cuda()).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        words += notes.numel()
        if day % 30 == 0:
            summary = [None] * world
            office = channels.get("office", list(range(world)), backend="gloo")
            dist.all_gather_object(summary, f"rank {rank}: {words.item():.0f} words", group=office)
            if rank == 0:
                print(f"day {day}: " + "; ".join(summary), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
