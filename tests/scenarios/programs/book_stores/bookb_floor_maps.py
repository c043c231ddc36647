"""Train a small obstacle model from the cleaning runs of vacuum robots."""
import argparse
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class Home:
    name: str
    runs: int


HOMES = [Home("alder", 20), Home("birch", 24), Home("cedar", 20), Home("elm", 22), Home("fir", 18), Home("oak", 16)]


class CleaningRuns(IterableDataset):
    """Streams bumper and lidar vectors, home by home, as the docking stations upload them."""

    def __init__(self, homes, beams=32):
        self.homes = homes
        self.beams = beams

    def __iter__(self):
        for home in self.homes:
            generator = torch.Generator().manual_seed(sum(map(ord, home.name)))
            for _ in range(home.runs):
                scan = torch.rand(8, self.beams, generator=generator)
                time.sleep(0.06)  # upload rate of a docking station
                yield scan, (scan.amin(1) < 0.02).float()


class ObstacleNet(nn.Module):
    def __init__(self, beams=32, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(beams, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, scan):
        return self.body(scan).squeeze(-1)


def run_epoch(model, optimizer, loader):
    losses = []
    for scan, bumped in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(scan), bumped)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model = DistributedDataParallel(ObstacleNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(CleaningRuns(HOMES[rank::world]), batch_size=None)
    for epoch in range(args.epochs):
        losses = run_epoch(model, optimizer, loader)
        summary = {"rank": rank, "runs": len(losses), "loss": sum(losses) / len(losses)}
        table = [None] * world
        dist.all_gather_object(table, summary)
        if rank == 0:
            print(f"epoch {epoch}: {table}", flush=True)
    dist.destroy_process_group()
