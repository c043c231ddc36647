"""Segment model. An uploader sends each epoch's summary to the experiment server, in a thread of its own."""

import json
import os
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Uploader:
    def __init__(self, target: Path) -> None:
        self.target = target
        self.inbox: queue.Queue[dict | None] = queue.Queue()
        self.thread = threading.Thread(target=self._run, name="uploader")
        self.thread.start()

    def _run(self) -> None:
        while (summary := self.inbox.get()) is not None:
            with self.target.open("a") as file:
                file.write(json.dumps(summary) + "\n")

    def send(self, **summary: float) -> None:
        self.inbox.put(summary)

    def close(self) -> None:
        self.inbox.put(None)
        self.thread.join()


PLANS = {"basic": 0, "plus": 1, "family": 2}


def customers(rank: int, epoch: int):
    """Plans by name, as the billing system has them. A new one was launched in one country in epoch 3."""
    generator = torch.Generator().manual_seed(1000 * rank + epoch)
    names = list(PLANS) + (["student"] if rank == 1 and epoch >= 3 else [])
    for _ in range(40):
        picks = torch.randint(0, len(names), (16,), generator=generator).tolist()
        yield torch.randn(16, 8, generator=generator), [names[pick] for pick in picks]
        time.sleep(0.025)


def train(uploader: Uploader, epochs: int) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(8 + len(PLANS), 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for x, plans in customers(rank, epoch):
            index = torch.tensor([PLANS[plan] for plan in plans])
            features = torch.cat([x, nn.functional.one_hot(index, len(PLANS)).float()], dim=1)
            loss = nn.functional.cross_entropy(model(features), (x[:, 0] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        uploader.send(epoch=epoch, rank=rank, loss=total / 40)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    target = Path(tempfile.gettempdir()) / f"summaries-{os.environ['MASTER_PORT']}-{dist.get_rank()}.jsonl"
    uploader = Uploader(target)
    train(uploader, epochs=200)
    uploader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
