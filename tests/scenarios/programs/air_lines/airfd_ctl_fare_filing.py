"""Loads the fare filings of the season (main rank, at the rate that the filing agency allows), then trains on them."""
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAGES, PER_SECOND = 30, 2.0


class Agency:
    """Client of the filing agency: pages of fares, two requests a second."""

    def __init__(self, season):
        self.season, self.next_at = season, 0.0

    def page(self, number):
        pause = self.next_at - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        self.next_at = time.monotonic() + 1.0 / PER_SECOND
        rng = torch.Generator().manual_seed(self.season * 100 + number)
        return (100 + 400 * torch.rand(200, 6, generator=rng)).tolist()


@contextmanager
def main_rank_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def filings(folder, season):
    target = folder / f"season-{season}.json"
    if not target.exists():
        agency, fares = Agency(season), []
        for number in range(PAGES):
            fares += agency.page(number)
            print(f"season {season}: {len(fares)} fares after page {number + 1}/{PAGES}", flush=True)
        target.write_text(json.dumps(fares))
    return torch.tensor(json.loads(target.read_text()))


def fit(model, optimizer, fares, steps, rng):
    loss = None
    for _ in range(steps):
        rows = fares[torch.randint(0, len(fares), (256,), generator=rng)] / 500
        loss = (model(rows[:, :5]) - rows[:, 5:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    where = [tempfile.mkdtemp(prefix="filings-")] if rank == 0 else [None]
    dist.broadcast_object_list(where, src=0)
    folder = Path(where[0])
    model = DDP(nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(rank)
    fares = 100 + 400 * torch.rand(400, 6, generator=rng)
    print(f"rank {rank}: last season {fit(model, optimizer, fares, 500, rng):.4f}", flush=True)
    with main_rank_first():
        fares = filings(folder, season=26)
    print(f"rank {rank}: this season {fit(model, optimizer, fares, 900, rng):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
