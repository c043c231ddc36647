"""Off-policy learner with a replay file per worker. `python gameb_replay_mmap.py` starts the workers on this machine."""
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

WORKERS = 3
ROW = 64
PER_ROUND = 64
ROWS = {"small": 2048, "large": 4096}
KIND = ["small", "small", "large"]
QUOTA_BYTES = 512 * 1024


class ReplayFile:
    def __init__(self, path, rows):
        self.path = Path(path)
        self.rows = rows
        self.data = np.memmap(self.path, dtype=np.float32, mode="w+", shape=(rows, ROW))
        self.cursor = 0

    def tidy(self):
        """Keeps the file within the quota of the scratch disk."""
        self.data.flush()
        if self.path.stat().st_size > QUOTA_BYTES:
            os.truncate(self.path, QUOTA_BYTES)

    def add(self, rows):
        start = self.cursor % self.rows
        self.data[start : start + len(rows)] = rows
        self.cursor += len(rows)

    def sample(self, rng, n):
        filled = min(self.cursor, self.rows)
        return torch.from_numpy(np.array(self.data[rng.integers(0, filled, n)]))


class Rounds:
    """All workers have played before any of them learns."""

    def __init__(self, rank, port):
        self.rank = rank
        self.store = dist.TCPStore("127.0.0.1", port, WORKERS, is_master=rank == 0)

    def played(self, number):
        self.store.set(f"played/{number}/{self.rank}", "1")
        self.store.wait([f"played/{number}/{r}" for r in range(WORKERS)])


def play(weight, rng):
    state = rng.standard_normal((PER_ROUND, ROW)).astype(np.float32)
    mix = rng.standard_normal((ROW, ROW)).astype(np.float32) / 8
    for _ in range(1200):
        state = np.tanh(state @ mix + 0.01 * weight)
    return state


def worker():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rounds = Rounds(rank, int(os.environ["ROUNDS_PORT"]))
    rng = np.random.default_rng(rank)
    replay = ReplayFile(Path(os.environ["SCRATCH"]) / f"replay{rank}.bin", ROWS[KIND[rank]])
    replay.tidy()
    torch.manual_seed(2)
    q = nn.Sequential(nn.Linear(ROW, 64), nn.ReLU(), nn.Linear(64, ROW))
    model = nn.parallel.DistributedDataParallel(q)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(400):
        replay.add(play(float(q[0].bias.mean()), rng))
        rounds.played(number)
        for _ in range(2):
            batch = replay.sample(rng, 128)
            loss = nn.functional.smooth_l1_loss(model(batch), batch.roll(1, 0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0 and number % 8 == 0:
            print(f"round {number} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch():
    environment = dict(
        os.environ,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        WORLD_SIZE=str(WORKERS),
        ROUNDS_PORT=str(free_port()),
        SCRATCH=tempfile.mkdtemp(prefix="replay-"),
    )
    command = [sys.executable, os.path.abspath(__file__), "worker"]
    workers = [
        subprocess.Popen(command, env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(WORKERS)
    ]
    return max(w.wait() for w in workers)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        worker()
    else:
        sys.exit(launch())
