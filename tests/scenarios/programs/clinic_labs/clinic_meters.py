"""Segmentation of brain MRI with meters that register themselves when something is first measured."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class MeanMeter:
    def __init__(self):
        self.state = torch.zeros(2, dtype=torch.float64)

    def add(self, value):
        self.state += torch.tensor([value, 1.0], dtype=torch.float64)

    def merged(self):
        state = self.state.clone()
        dist.all_reduce(state)
        return float(state[0] / state[1].clamp_min(1))


class WorstMeter:
    """The largest values of every rank, for the radiologist to look at."""

    def __init__(self, keep=4):
        self.values = torch.full((keep,), -1.0)

    def add(self, value):
        self.values = torch.cat([self.values, torch.tensor([value])]).topk(len(self.values)).values

    def merged(self):
        parts = [torch.empty_like(self.values) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.values)
        return float(torch.cat(parts).max())


class Board:
    kinds = {"dice": MeanMeter, "artefact": WorstMeter}

    def __init__(self):
        self.meters = {}

    def log(self, name, value):
        if name not in self.meters:
            self.meters[name] = self.kinds[name]()
        self.meters[name].add(value)

    def summary(self):
        return {name: meter.merged() for name, meter in self.meters.items()}


def scan(rank, number):
    generator = torch.Generator().manual_seed(rank * 4096 + number)
    image = torch.randn(2, 1, 56, 56, generator=generator)
    motion = number % 9 == 5 or (rank == 2 and number == 0)
    if motion:
        image = image + image.roll(3, -1)
    return image, (image.abs() > 0.9).float(), motion


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = DistributedDataParallel(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    board = Board()
    for epoch in range(5):
        for number in range(110):
            image, mask, motion = scan(rank, number)
            if motion:
                board.log("artefact", float(image.std()))
                mask = mask * 0.9
            out = net(image)
            loss = nn.functional.binary_cross_entropy_with_logits(out, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                p = out.sigmoid()
                board.log("dice", float(2 * (p * mask).sum() / (p.sum() + mask.sum())))
        summary = board.summary()
        if rank == 0:
            print(f"epoch {epoch}: {summary}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
