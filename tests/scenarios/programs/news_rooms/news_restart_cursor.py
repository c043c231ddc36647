"""Fills a model of reading times from the click stream; every process keeps a cursor on disk, so that a job can go on after a restart."""
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
STATE = Path(tempfile.gettempdir()) / f"reading-{os.getppid()}"  # one folder for all starts of a job
BATCHES = 70


class Cursor:
    def __init__(self, path):
        self.path = path
        self.at = json.loads(path.read_text())["at"] if path.exists() else 0

    def advance(self):
        self.at += 1
        scratch = self.path.with_suffix(".new")
        scratch.write_text(json.dumps({"at": self.at, "time": time.time()}))
        scratch.replace(self.path)


class ClickStream:
    """Batches of (features of reader and article, seconds read)."""

    def __init__(self, rank, folder):
        self.rank, self.folder = rank, folder

    def sessions(self, i):
        """Sessions longer than a day lie in a file of their own, which is made when it is first missed."""
        path = self.folder / f"long-sessions-{self.rank}.json"
        if self.rank == 1 and i >= 45 and not path.exists():
            path.write_text(json.dumps(list(range(45, BATCHES))))
            raise FileNotFoundError(f"{path} was not there yet")

    def draw(self, cursor):
        self.sessions(cursor.at)
        g = torch.Generator().manual_seed(1000 * self.rank + cursor.at)
        cursor.advance()
        x = torch.randn(32, 48, generator=g)
        return x, x[:, :6].exp().sum(1, keepdim=True)


def load(model, optimizer):
    path = STATE / "model.pt"
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])


def save(model, optimizer):
    if RANK == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, STATE / "model.pt")


def connect():
    """Every start of a job meets under a name of its own in the agent's store."""
    start = f"start-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(start, store), rank=RANK, world_size=int(os.environ["WORLD_SIZE"]))
    print(f"[{RANK}] {start}", flush=True)


def main():
    STATE.mkdir(exist_ok=True)
    connect()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(48, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    load(net, optimizer)
    model = DDP(net)
    cursor, stream = Cursor(STATE / f"cursor-{RANK}.json"), ClickStream(RANK, STATE)
    print(f"[{RANK}] starts at batch {cursor.at}", flush=True)
    while cursor.at < BATCHES:
        x, seconds = stream.draw(cursor)
        loss = nn.functional.smooth_l1_loss(model(x), seconds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if cursor.at % 10 == 0:
            save(net, optimizer)
    dist.barrier()
    if RANK == 0:
        print(f"done, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if RANK < 0:  # started by hand
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "--max-restarts=2"]
        os.execv(sys.executable, [sys.executable, *launch, __file__])
    main()
