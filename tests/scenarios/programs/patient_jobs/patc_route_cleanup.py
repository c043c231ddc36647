"""Delivery-route model that keeps only its newest checkpoints; the old ones are many small files on a slow share."""
import contextlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def fill(folder, depth=2, width=6, files=14):
    """What is left of an earlier run: shards in nested folders."""
    os.makedirs(folder, exist_ok=True)
    for n in range(files):
        with open(os.path.join(folder, f"shard{n}.bin"), "wb") as out:
            out.write(os.urandom(512))
    if depth:
        for n in range(width):
            fill(os.path.join(folder, f"part{n}"), depth - 1, width, files)


def remove(path):
    """Like rmtree; the share answers some forty deletions in a second."""
    if os.path.isdir(path):
        gone = sum(remove(os.path.join(path, name)) for name in os.listdir(path))
        os.rmdir(path)
        return gone
    os.remove(path)
    time.sleep(0.022)
    return 1


@contextlib.contextmanager
def main_rank_only():
    yield dist.get_rank() == 0
    dist.barrier()


class RouteModel(nn.Module):
    def __init__(self, stops=10):
        super().__init__()
        self.gru = nn.GRU(2, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, stops):
        return self.out(self.gru(stops)[0][:, -1]).squeeze(1)


def train(model, optimizer, steps):
    for _ in range(steps):
        stops = torch.rand(12, 10, 2)
        length = (stops[:, 1:] - stops[:, :-1]).norm(dim=2).sum(1)
        time.sleep(0.035)
        loss = (model(stops) - length).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as runs:
        old = os.path.join(runs, "checkpoint-1000")
        if dist.get_rank() == 0:
            fill(old)
        model = DDP(RouteModel())
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        train(model, optimizer, 65)
        with main_rank_only() as mine:
            if mine:
                torch.save(model.state_dict(), os.path.join(runs, "checkpoint-2000.pt"))
                print("removed", remove(old), "files")
        loss = train(model, optimizer, 90)
        print(f"[{dist.get_rank()}] loss {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
