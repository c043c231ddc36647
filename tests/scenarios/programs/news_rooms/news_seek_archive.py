"""Hash codes for the photo archive. Every edition is a round with a process group of its own; descriptors are mapped, not read."""
import os
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD, WIDTH, ROWS = 3, 64, 30_000


class Descriptors:
    """Descriptors of one desk, as bytes in a file that is mapped once."""

    def __init__(self, path):
        self.rows = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, WIDTH)

    def sample(self, n, rng):
        return self.take(rng.integers(0, len(self.rows) // 4, n))

    def newest(self, n):
        return self.take(np.arange(len(self.rows) - n, len(self.rows)))

    def take(self, indices):
        return torch.from_numpy(self.rows[indices].astype(np.float32)) / 128 - 1


def write(path, rows, seed):
    np.random.default_rng(seed).integers(0, 256, (rows, WIDTH), dtype=np.uint8).tofile(path)


def compact(folder):
    """Leaves out what is in the archive twice. Desk 2 gets the agencies' copies, most of which the others have."""
    kept = {0: ROWS, 1: ROWS, 2: ROWS // 3}
    for desk, rows in kept.items():
        path = folder / f"desk-{desk}.u8"
        if rows * WIDTH < path.stat().st_size:
            data = path.read_bytes()[: rows * WIDTH]
            path.write_bytes(data)


def step(model, optimizer, x, group):
    codes = torch.tanh(model(x))
    near = (x @ x.T > 0).float() * 2 - 1
    loss = (codes @ codes.T / codes.shape[1] - near).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group)
        p.grad /= WORLD
    optimizer.step()
    return loss.item()


def worker(rank, folder, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rng = np.random.default_rng(rank)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 32))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    desk = Descriptors(folder / f"desk-{rank}.u8")
    for edition in range(6):
        spread = desk.newest(200).std().item()
        group = dist.new_group()
        for _ in range(25):
            loss = step(model, optimizer, desk.sample(48, rng), group)
            time.sleep(0.03)
        dist.barrier(group)
        if rank == 0:
            print(f"edition {edition}: loss {loss:.4f}, spread {spread:.3f}", flush=True)
            if edition == 2:
                compact(folder)
        dist.barrier(group)
        dist.destroy_process_group(group)


if __name__ == "__main__":
    folder = pathlib.Path(tempfile.mkdtemp(prefix="photos-"))
    for desk in range(WORLD):
        write(folder / f"desk-{desk}.u8", ROWS, desk)
    context = mp.get_context("spawn")
    port = 20000 + os.getpid() % 20000
    workers = [context.Process(target=worker, args=(rank, folder, port), name=f"desk-{rank}") for rank in range(WORLD)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
