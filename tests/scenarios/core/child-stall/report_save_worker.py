"""Pre-training whose checkpoints are written by a process of their own, which reports what it wrote."""

import hashlib
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


def write_items(folder, items, results):
    """The items one after another, and for each 2 KiB of them a checksum, so that a resume can verify in parts."""
    for name, data in items:
        (folder / f"{name}.bin").write_bytes(data)
        sums = [hashlib.sha256(data[start : start + 2048]).hexdigest() for start in range(0, len(data), 2048)]
        results.put((name, sums))


class AsyncCall:
    """A save under way."""

    def __init__(self, folder, items):
        context = multiprocessing.get_context("fork")
        self.folder, self.count = folder, len(items)
        self.results = context.Queue()
        self.process = context.Process(target=write_items, args=(folder, items, self.results), daemon=True)
        self.process.start()

    def close(self):
        self.process.join()
        written = dict(self.results.get() for _ in range(self.count))
        index = "\n".join(f"{name} {','.join(sums)}" for name, sums in sorted(written.items()))
        (self.folder / "index").write_text(index)


class Checkpointer:
    def __init__(self, root, every_full):
        self.root = root
        self.every_full = every_full
        self.call = None
        self.saves = 0

    def save(self, step, model, optimizer):
        self.finalize()
        self.saves += 1
        folder = self.root / f"iter_{step:07d}"
        folder.mkdir(parents=True)
        items = [(name, tensor.numpy().tobytes()) for name, tensor in model.state_dict().items()]
        if self.saves % self.every_full == 0:
            for index, state in optimizer.state_dict()["state"].items():
                items += [(f"{key}-{index}", value.numpy().tobytes()) for key, value in state.items()]
        self.call = AsyncCall(folder, items)

    def finalize(self):
        if self.call is not None:
            self.call.close()
            self.call = None


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    core = nn.Sequential(nn.Linear(64, 1600), nn.ReLU(), nn.Linear(1600, 64))
    model = DDP(core)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    checkpointer = Checkpointer(Path(tempfile.gettempdir(), f"ckpt-{os.environ['MASTER_PORT']}"), every_full=2)
    for step in range(1, 3000):
        x = torch.randn(16, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 20 == 0 and rank == 0:
            checkpointer.save(step, core, optimizer)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    checkpointer.finalize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
