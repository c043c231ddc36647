"""Storeys and use of buildings from street level imagery: a head on crop features, one drive per process."""
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

# (street, frames, share of the facade that the camera sees)
DRIVES = [
    [("Lindenallee", 22, 0.9), ("Am Markt", 14, 0.8), ("Hafenweg", 12, 0.95)],
    [("Ostring", 27, 0.85), ("Ostring underpass", 1, 0.0), ("Gleisstrasse", 20, 0.9)],
    [("Kirchgasse", 18, 0.9), ("Schulstrasse", 30, 0.9)],
    [("Uferstrasse", 40, 0.95), ("Bruecke", 8, 0.9)],
]


@dataclass
class Frame:
    street: str
    crops: torch.Tensor
    use: torch.Tensor


class Drive:
    def __init__(self, number, crops=40):
        self.segments = DRIVES[number % len(DRIVES)]
        self.crops = crops
        self.rng = torch.Generator().manual_seed(number)

    def __iter__(self):
        for street, frames, openness in self.segments:
            for _ in range(frames):
                yield self.shoot(street, openness)

    def shoot(self, street, openness):
        picture = torch.rand(self.crops, 3, 128, 128, generator=self.rng)
        pooled = F.avg_pool2d(F.avg_pool2d(picture, 3, stride=1, padding=1), 16).flatten(1)
        seen = torch.rand(self.crops, generator=self.rng) < openness
        use = torch.randint(0, 5, (self.crops,), generator=self.rng)
        return Frame(street, pooled[seen], use[seen])


class FacadeHead(nn.Module):
    def __init__(self, width=192, classes=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.use = nn.Linear(64, classes)

    def forward(self, crops):
        return self.use(self.body(crops))


def fit_drive(model, optimizer, drive, device):
    history = []
    for number, frame in enumerate(drive):
        if len(frame.crops) == 0:
            continue
        logits = model(frame.crops.to(device))
        loss = F.cross_entropy(logits, frame.use.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if number % 12 == 0:
            print(f"{frame.street}: {number} frames, {history[-1]:.3g}", flush=True)
    return history


def street_scores(model, device, world):
    probe = torch.linspace(0, 1, 32 * 192).reshape(32, 192).to(device)
    with torch.no_grad():
        mine = model.module(probe)
    every = torch.empty(world * 32, 5, device=device)
    dist.all_gather_into_tensor(every, mine)
    return every.cpu()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local)
    torch.manual_seed(0)
    model = DistributedDataParallel(FacadeHead().to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for epoch in range(3):
        began = time.perf_counter()
        history = fit_drive(model, optimizer, Drive(rank), device)
        scores = street_scores(model, device, world)
        print(f"[{rank}] epoch {epoch}: {len(history)} frames in {time.perf_counter() - began:.1f} s, scores {tuple(scores.shape)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
