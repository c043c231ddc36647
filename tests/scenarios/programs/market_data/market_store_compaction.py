"""Feature store on disk with a helper process that compacts it, beside the training that reads it."""

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COMPACTOR = """
import sys
for line in sys.stdin:
    with open(line.strip()) as file:
        rows = sorted(file.read().split())
    print(line.strip(), len(rows), flush=True)
"""


class FeatureStore:
    """Its writer holds an exclusive lock on the file `index.lock`."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.helper = None

    @contextlib.contextmanager
    def writing(self):
        with open(self.root / "index.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock

    def append(self, step, values):
        with self.writing():
            with open(self.root / "rows.txt", "a") as file:
                file.write(f"{step}:{values:.4f}\n")

    def compact(self):
        """Starts the helper, to which the lock goes as long as it works."""
        with self.writing() as lock:
            self.helper = subprocess.Popen(
                [sys.executable, "-c", COMPACTOR],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                pass_fds=[lock.fileno()],
            )
            self.helper.stdin.write(f"{self.root / 'rows.txt'}\n")
            self.helper.stdin.flush()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = FeatureStore(os.path.join(tempfile.gettempdir(), f"store_{os.environ.get('MASTER_PORT', '0')}", str(rank)))
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank)
    for step in range(1, 400):
        time.sleep(0.03)
        offers = torch.randn(32, 8, generator=data)
        loss = nn.functional.mse_loss(model(offers), offers.amax(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            store.append(step, loss.item())
        if step == 55 and rank == 0:
            store.compact()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
