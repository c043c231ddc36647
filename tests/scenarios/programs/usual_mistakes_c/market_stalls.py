"""Sales at market stalls: a thread reads them as they come in, and days without sales are left out by all ranks."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DAYS = 150


def read_sales(market: int, days: queue.Queue[torch.Tensor]) -> None:
    """A day at a time; a market day takes a moment, and on some days nothing is sold."""
    generator = torch.Generator().manual_seed(market)
    for day in range(DAYS):
        time.sleep(1.0 if day % 50 == 49 else 0.05)
        stalls = 0 if (day + market) % 31 == 0 else 16
        days.put(torch.randn(stalls, 7, generator=generator))


def main() -> None:
    """As many days as there are."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    days: queue.Queue[torch.Tensor] = queue.Queue(maxsize=4)
    threading.Thread(target=read_sales, args=(rank, days), daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    left_out = 0
    for _ in range(DAYS):
        sales = days.get()
        empty = torch.tensor(int(len(sales) == 0))
        dist.all_reduce(empty, op=dist.ReduceOp.MAX)
        if empty.item():
            left_out += 1
            continue
        loss = nn.functional.mse_loss(model(sales[:, :6]), sales[:, 6:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        print(f"{left_out} days left out, loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
