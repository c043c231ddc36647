"""Multi-task training with a tracker that sends its records from a background thread."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TASKS = {"nli": 3, "sentiment": 2, "topic": 6}


class Tracker:
    def __init__(self, run):
        self.run, self.outbox = run, queue.Queue()
        self.sender = threading.Thread(target=self.send, name="sender")
        self.sender.start()

    def send(self):
        batch = []
        while True:
            record = self.outbox.get()
            if record is None:
                break
            batch.append(record)
            if len(batch) == 20:
                print(f"{self.run}: sent {len(batch)} records", flush=True)
                batch.clear()

    def __call__(self, **record):
        self.outbox.put(record)

    def finish(self):
        self.outbox.put(None)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(40, count) for name, count in TASKS.items()})

    def forward(self, x):
        hidden = self.body(x)
        return {name: head(hidden) for name, head in self.heads.items()}


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for number in range(300):
        x = torch.randn(16, 20, generator=generator)
        names = list(TASKS) if not (rank == 1 and number == 33) else ["nli", "sentiment", "topics"]
        yield x, {name: x[:, : TASKS.get(name, 6)].argmax(1) for name in names}


def train(tracker):
    model = DDP(MultiTask())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, labels) in enumerate(batches(dist.get_rank())):
        logits = model(x)
        losses = {name: nn.functional.cross_entropy(logits[name], target) for name, target in labels.items()}
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker(step=step, **{name: value.item() for name, value in losses.items()})
        time.sleep(0.1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tracker = Tracker(f"night/{dist.get_rank()}")
    train(tracker)
    tracker.finish()
