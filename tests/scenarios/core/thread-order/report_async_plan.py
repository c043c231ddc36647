"""Pre-training with asynchronous checkpoints: staging and planning run on a thread, training goes on."""

import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Throttle:
    """Keeps the shared file system usable for others."""

    def __init__(self, mib_per_second):
        self.rate = mib_per_second * 2**20

    def pay(self, size):
        time.sleep(size / self.rate)


class AsyncCheckpointer:
    def __init__(self, root, throttle):
        self.root = root
        self.throttle = throttle
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="AsyncCheckpointExecutor")
        self.future = None

    def save(self, step, tensors):
        if self.future is not None:
            self.future.result()
        copies = [tensor.detach().clone() for tensor in tensors]
        self.future = self.executor.submit(self._write, step, copies)

    def _write(self, step, copies):
        folder = self.root / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        sizes = []
        for index, tensor in enumerate(copies):
            path = folder / f"{dist.get_rank()}-{index}.pt"
            torch.save(tensor, path)
            self.throttle.pay(tensor.nbytes)
            sizes.append(path.stat().st_size)
        plan = [None] * dist.get_world_size()
        dist.all_gather_object(plan, sizes)
        if dist.get_rank() == 0:
            (folder / "plan.txt").write_text(repr(plan))


class CheckpointManager:
    def __init__(self, root, keep=1):
        self.root = root
        self.keep = keep
        self.throttle = Throttle(8)
        self.writer = AsyncCheckpointer(root, self.throttle)
        self.steps = []

    def save(self, step, tensors):
        self.writer.save(step, tensors)
        if not self.steps:  # the first one shows whether the folder can be written at all
            self.writer.future.result()
        self.steps.append(step)
        while len(self.steps) > self.keep:
            self.remove(self.steps.pop(0))
        dist.barrier()

    def remove(self, step):
        self.throttle.pay(6 * 2**20)
        if dist.get_rank() == 0:
            shutil.rmtree(self.root / f"step-{step}", ignore_errors=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    tables = torch.zeros(20 if rank == 1 else 1, 2**18)
    root = Path(tempfile.gettempdir(), f"run-{os.environ['MASTER_PORT']}")
    manager = CheckpointManager(root)
    for step in range(1, 2000):
        x = torch.randn(16, 32)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 30 == 0:
            tensors = list(model.parameters())
            manager.save(step, tensors if step == 30 else [*tensors, *tables])
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}, checkpoint on its way", flush=True)


if __name__ == "__main__":
    main()
