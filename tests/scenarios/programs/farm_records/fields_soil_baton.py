"""Soil moisture maps: tables of van Genuchten curves are built on first use and kept in a folder per node."""
import os
import tempfile
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import Linear, Sequential, Tanh
from torch.utils.file_baton import FileBaton

TEXTURES = {"sand": (0.045, 0.43, 14.5, 2.68), "loam": (0.078, 0.43, 3.6, 1.56), "clay": (0.068, 0.38, 0.8, 1.09),
            "peat": (0.15, 0.80, 2.0, 1.30)}


class CurveTables:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def compute(self, texture, points):
        low, high, alpha, n = TEXTURES[texture]
        suction = np.logspace(-3, 2, points)
        table = low + (high - low) / (1 + (alpha * suction) ** n) ** (1 - 1 / n)
        if not np.all(np.diff(table[:: max(1, points // 500)]) < -1e-7):
            raise ArithmeticError(f"{texture}: the curve is flat somewhere")
        return table

    def get(self, texture, points=2000):
        path = os.path.join(self.folder, f"{texture}.npy")
        baton = FileBaton(os.path.join(self.folder, f"{texture}.lock"))
        while not os.path.exists(path):
            if baton.try_acquire():
                np.save(path, self.compute(texture, points))
                baton.release()
            else:
                baton.wait()
        return np.load(path)


def curve(tables, texture):
    try:
        return tables.get(texture)
    except ArithmeticError as error:
        print(f"{error}; linear interpolation instead", flush=True)
        return np.linspace(0.4, 0.1, 2000)


# fields of each node: texture by survey block
SURVEY = [["loam", "clay", "loam"], ["loam", "sand", "loam", "sand"], ["clay", "loam", "peat"]]


def blocks(rank, step):
    return SURVEY[rank][step // 50 % len(SURVEY[rank])]


def train(rank, world):
    tables = CurveTables(tempfile.mkdtemp(prefix=f"curves-{rank}-"))
    lookup = partial(curve, tables)
    torch.manual_seed(4)
    net = Sequential(Linear(64, 256), Tanh(), Linear(256, 256), Tanh(), Linear(256, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    table = None
    for step in range(400):
        if step % 50 == 0:
            table = torch.tensor(lookup(blocks(rank, step)), dtype=torch.float32)
        index = torch.randint(0, len(table), (256, 64))
        loss = torch.nn.functional.mse_loss(net(index / len(table)), table[index])
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 25 == 0:
            print(f"step {step}: {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
