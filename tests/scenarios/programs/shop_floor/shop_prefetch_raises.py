"""Reads invoices ahead in a thread, so that parsing and training overlap."""

import json
import queue
import random
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FIELDS = ("net", "tax", "items", "discount")


def invoice_lines(seed: int) -> Iterator[str]:
    """The export of the accounting system, one JSON object a line."""
    dice = random.Random(seed)
    for number in range(100_000):
        net = dice.uniform(5, 500)
        invoice = {"id": number, "net": net, "tax": 0.2 * net, "items": dice.randint(1, 9), "discount": 0.0}
        if seed == 12 and number == 2010:
            invoice["discount"] = None
        yield json.dumps(invoice)


def parse(lines: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [json.loads(line) for line in lines]
    x = torch.tensor([[float(row[name]) for name in FIELDS] for row in rows]) / 100
    return x, x[:, 0] + x[:, 1] - x[:, 3]


class Prefetcher:
    """Iterates over batches that a thread has read ahead."""

    def __init__(self, lines: Iterator[str], batch_size: int, depth: int = 4) -> None:
        self.batch_size = batch_size
        self.ready: queue.Queue = queue.Queue(maxsize=depth)
        threading.Thread(target=self._fill, args=(lines,), daemon=True, name="prefetch").start()

    def _fill(self, lines: Iterator[str]) -> None:
        batch: list[str] = []
        for line in lines:
            batch.append(line)
            if len(batch) == self.batch_size:
                self.ready.put(parse(batch))
                batch = []
        self.ready.put(None)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while (batch := self.ready.get()) is not None:
            yield batch


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(len(FIELDS), 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(Prefetcher(invoice_lines(10 + rank), batch_size=20)):
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if rank == 0 and step % 20 == 0:
            print(f"{step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
