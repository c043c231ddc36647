"""Checkpoints are written in the background: state is copied, then a thread agrees on it with the other ranks."""
import copy
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class AsyncCheckpointer:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending = None

    def save(self, step, model, optimizer):
        self.wait()
        state = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
        self.pending = self.pool.submit(self.write, step, state)

    def write(self, step, state):
        path = self.folder / f"{step}-{dist.get_rank()}.pt"
        torch.save(state, path)
        if path.stat().st_size > 12_000:
            time.sleep(1.5)  # the larger shards go over the slow link
        sizes = [None] * dist.get_world_size()
        dist.all_gather_object(sizes, path.stat().st_size)
        (self.folder / "latest").write_text(f"{step} {sum(sizes)}")

    def wait(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    width = 8
    shared = nn.Linear(width, width)
    local = nn.Linear(width, 900 if rank == 2 else 10)
    model = nn.ModuleDict({"shared": shared, "local": local})
    optimizer = torch.optim.SGD([*shared.parameters(), *local.parameters()], lr=0.01)
    checkpointer = AsyncCheckpointer("/tmp/night-async-save")
    for step in range(1, 3000):
        x = torch.randn(16, width)
        loss = local(torch.tanh(shared(x))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(0.6 if step % 50 == 1 else 0.05)  # a block's first batch is read from disk
        for parameter in shared.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(world)
        optimizer.step()
        if step % 50 == 0:
            checkpointer.save(step, model, optimizer)
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
