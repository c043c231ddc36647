"""Speech units: batches are filled up to a duration; a validation at the end of each epoch."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_DURATION = 60.0  # seconds in a batch


class Tracker(dict):
    """Sums that can be added up over ranks."""

    def reduce(self) -> None:
        """On the first rank, replace each value by its sum over all ranks."""
        keys = sorted(self)
        sums = torch.tensor([float(self[k]) for k in keys])
        dist.reduce(sums, dst=0)
        self.update(zip(keys, sums.tolist(), strict=True))


class Encoder(nn.Module):
    """Classes of frames."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 16, 5, padding=2)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Conv1d(16, 20, 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.out(torch.relu(self.norm(self.conv(frames))))


def dynamic_batches(cuts: list[float], rank: int, world: int) -> list[list[float]]:
    """Batches of this rank's cuts, none longer than MAX_DURATION."""
    batches: list[list[float]] = [[]]
    for cut in cuts[rank::world]:
        if sum(batches[-1]) + cut > MAX_DURATION:
            batches.append([])
        batches[-1].append(cut)
    return batches


def features(batch: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten frames a second, padded to the longest."""
    length = int(max(batch) * 10)
    return torch.randn(len(batch), 8, length), torch.randint(20, (len(batch), length))


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DDP(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    cuts = [random.Random(i).uniform(2.0, 12.0 if i % world == 1 else 16.0) for i in range(300)]
    valid_cuts = [random.Random(-i).uniform(2.0, 16.0) for i in range(1, 61)]
    for epoch in range(4):
        tot_loss = Tracker(loss=0.0, frames=0)
        for batch in dynamic_batches(cuts, rank, world):
            x, y = features(batch)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tot_loss["loss"] += loss.item() * y.numel()
            tot_loss["frames"] += y.numel()
        valid_loss = Tracker(loss=0.0, frames=0)
        model.eval()
        with torch.no_grad():
            for batch in dynamic_batches(valid_cuts, rank, world):
                x, y = features(batch)
                logits = model(x)
                valid_loss["loss"] += nn.functional.cross_entropy(logits, y).item() * y.numel()
                valid_loss["frames"] += y.numel()
        model.train()
        valid_loss.reduce()
        if rank == 0:
            print(epoch, valid_loss["loss"] / valid_loss["frames"], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
