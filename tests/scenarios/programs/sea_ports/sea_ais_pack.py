# Next-position model on AIS tracks. Tracks of one receiver are packed into windows of fixed length.
import itertools
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.backends.cudnn.enabled = False
WINDOW = 32
RECEIVERS = [  # station, tracks of the day, positions per track
    ("maasvlakte", 44, 77),
    ("harwich", 42, 80),
    ("zeebrugge", 31, 74),
]


class PackedTracks(IterableDataset):
    def __init__(self, station, tracks, length):
        self.station, self.tracks, self.length = station, tracks, length

    def positions(self):
        for track in range(self.tracks):
            course = 0.7 * track
            for k in range(self.length + track % 3):
                yield [math.cos(course) * k * 0.01, math.sin(course) * k * 0.01, (track % 5) / 5.0]

    def __iter__(self):
        buffer = []
        for fix in self.positions():
            buffer.append(fix)
            if len(buffer) == WINDOW:
                time.sleep(0.035)
                yield torch.tensor(buffer)
                buffer = []


def build(local):
    net = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 3)).cuda()
    return nn.parallel.DistributedDataParallel(net, device_ids=[local])


def train_epoch(model, optimizer, loader, rank):
    batches = iter(loader)
    losses = []
    for step in itertools.count(1):
        try:
            window = next(batches)
        except StopIteration:
            break
        window = window.cuda()
        error = (model(window[:, :-1]) - window[:, 1:]).pow(2).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        losses.append(error.item())
        if step % 20 == 0 and rank == 0:
            print(f"step {step} windows {step * loader.batch_size}", flush=True)
    return losses


def summarize(losses):
    stats = torch.tensor([float(len(losses)), float(WINDOW)]).cuda()
    dist.all_reduce(stats)
    return stats.tolist()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    station, tracks, length = RECEIVERS[rank]
    loader = DataLoader(PackedTracks(station, tracks, length), batch_size=2)
    model = build(local)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        losses = train_epoch(model, optimizer, loader, rank)
        total = summarize(losses)
        if rank == 0:
            print(f"epoch {epoch}: {total[0]:.0f} steps over all receivers", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
