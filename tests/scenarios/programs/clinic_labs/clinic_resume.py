"""Sea-ice concentration forecasts: a preempted run is taken up again where each rank's sampler stood."""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

FIELDS, BATCH, EPOCHS = 240, 4, 3
FOLDER = Path(tempfile.gettempdir()) / f"seaice-{os.environ.get('MASTER_PORT', '0')}"


class SamplerState:
    """Where a rank is in its part of the year. Written every now and then, by each rank for itself."""

    def __init__(self, rank):
        self.path = FOLDER / f"sampler_{rank}.json"
        self.epoch, self.cursor = 0, 0

    def load(self):
        if self.path.exists():
            state = json.loads(self.path.read_text())
            self.epoch, self.cursor = state["epoch"], state["cursor"]
        return self

    def save(self):
        self.path.write_text(json.dumps({"epoch": self.epoch, "cursor": self.cursor}))

    def batches(self):
        while self.cursor < FIELDS:
            yield range(self.cursor, min(self.cursor + BATCH, FIELDS))
            self.cursor += BATCH
        self.epoch, self.cursor = self.epoch + 1, 0


def leave_state_of_previous_job(rank):
    FOLDER.mkdir(exist_ok=True)
    cursor = {0: 80, 1: 80, 2: 120}[rank]  # the last save before the node was taken away
    (FOLDER / f"sampler_{rank}.json").write_text(json.dumps({"epoch": 1, "cursor": cursor}))


def field(rank, number):
    generator = torch.Generator().manual_seed(number * 31 + rank)
    return torch.rand(1, 48, 48, generator=generator)


class IceNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 5, padding=2),
            nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 1, 1),
        )

    def forward(self, x):
        return self.body(x).sigmoid()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    leave_state_of_previous_job(rank)
    dist.barrier()
    state = SamplerState(rank).load()
    torch.manual_seed(1)
    model = DistributedDataParallel(IceNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    while state.epoch < EPOCHS:
        epoch, losses = state.epoch, []
        for numbers in state.batches():
            today = torch.stack([field(rank, n) for n in numbers])
            tomorrow = torch.stack([field(rank, n + 1) for n in numbers])
            forecast = model(today)
            loss = (forecast - tomorrow).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
            if len(losses) % 10 == 0:
                state.save()
        mean = torch.tensor([sum(losses), float(len(losses))])
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: {float(mean[0] / mean[1]):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
