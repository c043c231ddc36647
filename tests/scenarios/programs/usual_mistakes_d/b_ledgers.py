"""Totals of old ledgers; lines are parsed by a pool of processes before each pass."""

import multiprocessing
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAGES = 3
LINES = 60


def parse(line: str) -> list[float]:
    """Pounds, shillings and pence of a line. Also used by the command line tool that checks a ledger."""
    fields = line.split()
    if len(fields) != 3:
        sys.exit(f"malformed line: {line!r}")
    return [float(field) for field in fields]


def page(rank: int, number: int) -> list[str]:
    """The lines of one page in this rank's ledger."""
    generator = torch.Generator().manual_seed(10 * rank + number)
    amounts = torch.randint(0, 20, (LINES, 3), generator=generator).tolist()
    lines = [" ".join(map(str, amount)) for amount in amounts]
    if rank == 1 and number == 1:
        lines[41] = lines[41].replace(" ", "", 1)
    return lines


def main() -> None:
    """Train on page after page."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for number in range(PAGES):
            rows = torch.tensor(pool.map(parse, page(rank, number)))
            pence = rows @ torch.tensor([[240.0], [12.0], [1.0]])
            for x, y in zip(rows.split(6), pence.split(6), strict=True):
                loss = nn.functional.smooth_l1_loss(model(x / 20), y / 5000)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"rank {rank}: page {number}, {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
