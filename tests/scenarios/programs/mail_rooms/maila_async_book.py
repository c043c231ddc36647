"""Learns delivery windows; books (weights and the history of all stops) are kept by a thread, so that the vans need not wait."""
import os
import tempfile
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BookKeeper:
    def __init__(self, folder, history):
        self.folder = folder
        self.history = history
        self.thread = None
        self.last = None

    def keep(self, step, model):
        """Starts to write a book; the one before has to be finished."""
        self.wait()
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.thread = threading.Thread(target=self._write, args=(step, weights), name="book-keeper", daemon=True)
        self.thread.start()

    def _write(self, step, weights):
        if dist.get_rank() == 0:
            torch.save(weights, os.path.join(self.folder, f"{step}.weights"))
            with open(os.path.join(self.folder, f"{step}.history"), "wb") as file:
                file.write(zlib.compress(self.history.numpy().tobytes(), 6))
        dist.barrier()  # from here on every van may refer to this book
        self.last = step

    def wait(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


class Stops:
    """Stops as the vans report them, eight times a second."""

    def __init__(self, van):
        self.generator = torch.Generator().manual_seed(van)

    def __iter__(self):
        while True:
            time.sleep(0.125)
            x = torch.rand(40, 7, generator=self.generator)
            yield x, x.sum(1, keepdim=True).sin()


def main(steps=400, book_every=32):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    model = DDP(nn.Sequential(nn.Linear(7, 80), nn.Tanh(), nn.Linear(80, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    keeper = BookKeeper(tempfile.mkdtemp(prefix="books-"), torch.randn(15_000_000))
    for step, (x, window) in enumerate(Stops(rank), 1):
        loss = nn.functional.mse_loss(model(x), window)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.4f}, last book {keeper.last}", flush=True)
        if step % book_every == 0:
            keeper.keep(step, model.module)
        if step == steps:
            break
    keeper.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
