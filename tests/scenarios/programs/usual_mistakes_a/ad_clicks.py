"""DDP: will an advertisement be clicked? Each process sends a sign of life to the dispatcher's file."""

import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SITES = {"news": 0, "sports": 1, "weather": 2, "recipes": 3}


class SignOfLife(threading.Thread):
    """Touches a file every second, until told that the work is done."""

    def __init__(self, rank: int) -> None:
        super().__init__(name="sign-of-life")
        self.path = Path(f"/tmp/ad_clicks.{rank}.alive")
        self.done = threading.Event()

    def run(self) -> None:
        """The loop."""
        while not self.done.wait(1.0):
            self.path.touch()
        self.path.unlink(missing_ok=True)


def day_of(rank: int, number: int) -> list[tuple[str, float, float]]:
    """Site, hour and click of a few hundred views."""
    generator = torch.Generator().manual_seed(10 * rank + number)
    sites = [*SITES, "horoscope"] if (rank, number) == (2, 4) else list(SITES)
    rows = []
    for _ in range(320):
        site = sites[int(torch.randint(len(sites), (), generator=generator))]
        hour = torch.rand((), generator=generator).item()
        rows.append((site, hour, float(hour > 0.6)))
    return rows


class Clicks(nn.Module):
    """Site and hour to a score."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = nn.Embedding(len(SITES), 8)
        self.score = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, sites: torch.Tensor, hours: torch.Tensor) -> torch.Tensor:
        """One score a view."""
        return self.score(torch.cat([self.sites(sites), hours[:, None]], 1)).squeeze(1)


def main() -> None:
    """Twelve days."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    life = SignOfLife(rank)
    life.start()
    torch.manual_seed(0)
    model = DistributedDataParallel(Clicks())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for number in range(12):
        rows = day_of(rank, number)
        sites = torch.tensor([SITES[site] for site, _, _ in rows])
        hours, clicks = torch.tensor([row[1:] for row in rows]).unbind(1)
        for views in torch.arange(len(rows)).split(16):
            scores = model(sites[views], hours[views])
            loss = nn.functional.binary_cross_entropy_with_logits(scores, clicks[views])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"day {number}: {loss.item():.3f}")
    life.done.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
