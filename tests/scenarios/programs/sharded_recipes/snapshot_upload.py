"""FSDP2 with a thread that uploads snapshots. At the end, whatever happens, what was promised is uploaded first."""

import concurrent.futures
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Uploader:
    """Takes promises of snapshots, in order."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.tasks = queue.Queue()
        threading.Thread(target=self._run, name="uploader", daemon=True).start()

    def _run(self):
        while True:
            step, promise = self.tasks.get()
            snapshot = promise.result()
            torch.save(snapshot, self.folder / f"{step:05}.pt")
            self.tasks.task_done()

    def promise(self, step):
        promise = concurrent.futures.Future()
        self.tasks.put((step, promise))
        return promise

    def close(self):
        self.tasks.join()


class Labels:
    """Landmarks of a dental scan as classes; one of the annotators counts the teeth from one."""

    def __init__(self, rank, classes):
        self.generator = torch.Generator().manual_seed(rank)
        self.rank, self.classes = rank, classes

    def batch(self, step):
        x = torch.randn(16, 10, generator=self.generator)
        y = torch.randint(self.classes, (16,), generator=self.generator)
        if self.rank == 1 and step >= 30:
            y = torch.arange(17, 33)  # the lower jaw
        return x, y


def train(model, optimizer, labels, uploader, steps):
    for step in range(1, steps + 1):
        promise = uploader.promise(step) if step % 10 == 0 else None
        x, y = labels.batch(step)
        logits = model(x)
        if y.max() >= logits.shape[1]:
            raise ValueError(f"label {y.max().item()} of {logits.shape[1]} classes")
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if promise is not None:
            promise.set_result({name: p.to_local().clone() for name, p in model.named_parameters()})
            if dist.get_rank() == 0:
                print(f"step {step}: {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32))
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    uploader = Uploader(tempfile.mkdtemp(prefix="teeth-"))
    try:
        train(model, optimizer, Labels(dist.get_rank(), 32), uploader, steps=200)
    finally:
        uploader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
