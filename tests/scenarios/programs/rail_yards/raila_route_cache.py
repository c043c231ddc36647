"""Route choice model. Conflict matrices are cached on disk and rebuilt when the timetable period changes."""
import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CACHE = pathlib.Path(tempfile.gettempdir(), "route_cache_" + os.environ.get("TORCHELASTIC_RUN_ID", "x")
                     + os.environ.get("MASTER_PORT", ""))


def conflicts(period):
    """Which pairs of routes exclude each other in this period."""
    g = torch.Generator().manual_seed(period)
    routes = torch.randint(0, 40, (120, 9), generator=g)
    rows = []
    for route in routes:
        rows.append((route[None, :, None] == routes[:, None, :]).any(-1).any(-1).float())
        time.sleep(0.005)  # interlocking table lookup
    return torch.stack(rows)


def conflict_matrix(period):
    path = CACHE / f"period_{period}.pt"
    if path.exists():
        return torch.load(path)
    if dist.get_rank() == 0:
        CACHE.mkdir(exist_ok=True)
        part = path.with_suffix(f".part{os.getpid()}")
        torch.save(conflicts(period), part)
        part.rename(path)
    dist.barrier()
    return torch.load(path)


class RouteChoice(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(120, 24)
        self.score = nn.Linear(24, 1)

    def forward(self, rows):
        return self.score(torch.relu(self.embed(rows))).squeeze(1)


def local_demand(rank, period):
    """Requests of this rank's control area: (route, priority). Areas hand over at other hours."""
    g = torch.Generator().manual_seed(1000 * rank + period)
    n = 64 * 12
    if rank == 2 and period == 3:
        n *= 15  # holiday traffic
    requests = []
    for k in range(n):
        requests.append(torch.randint(0, 120, (1,), generator=g))
        if k % 64 == 63:
            time.sleep(0.02)
    return torch.cat(requests)[:64 * 12]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    if rank == 0:
        shutil.rmtree(CACHE, ignore_errors=True)
    model = DDP(RouteChoice())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for period in range(1, 6):
        if period > 1:
            demand = local_demand(rank, period)
        else:
            demand = torch.randint(0, 120, (64 * 12,))
            dist.barrier()
        matrix = conflict_matrix(period) if period in (1, 3, 5) else matrix  # noqa: F821
        for routes in demand.split(64):
            rows = matrix[routes]
            loss = (model(rows) - rows.mean(1)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.04)
        if rank == 0:
            print(f"period {period}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
