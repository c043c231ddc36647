"""Blend recipes on rented machines: a notice from the provider (SIGUSR1) leads to a snapshot."""
import os
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

MACHINES = [
    {"name": "blend-a", "contract": "reserved"},
    {"name": "blend-b", "contract": "spot", "notice_after_s": 3.5},
    {"name": "blend-c", "contract": "reserved"},
]


class Notice:
    """Remembers that the provider has spoken."""

    def __init__(self, machine):
        self.pending = False
        signal.signal(signal.SIGUSR1, self._received)
        if machine["contract"] == "spot":
            agent = threading.Timer(machine["notice_after_s"], os.kill, (os.getpid(), signal.SIGUSR1))
            agent.daemon = True
            agent.start()

    def _received(self, number, frame):
        self.pending = True

    def take(self):
        pending, self.pending = self.pending, False
        return pending


class Snapshots:
    def __init__(self, model, optimizer, cursor):
        self.model, self.optimizer, self.cursor = model, optimizer, cursor
        self.folder = tempfile.mkdtemp(prefix="blends-")

    def write(self, tag):
        rank = dist.get_rank()
        cursors = [None] * dist.get_world_size() if rank == 0 else None
        dist.gather_object(dict(self.cursor), cursors, dst=0)
        if rank == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                        "cursors": cursors}, os.path.join(self.folder, f"{tag}.pt"))


def teas(rank):
    """Shares of Assam, Ceylon, Kenya and Nilgiri, and the taster's verdict."""
    rng = torch.Generator().manual_seed(rank)
    while True:
        shares = torch.softmax(torch.randn(24, 4, generator=rng), 1)
        verdict = shares @ torch.tensor([0.9, 0.5, 0.7, 0.2]) - (shares - 0.25).pow(2).sum(1)
        time.sleep(0.05)
        yield shares, verdict.unsqueeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    notice = Notice(MACHINES[rank])
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    cursor = {"machine": MACHINES[rank]["name"], "seen": 0}
    snapshots = Snapshots(model, optimizer, cursor)
    for step, (shares, verdict) in enumerate(teas(rank), 1):
        loss = torch.nn.functional.mse_loss(model(shares), verdict)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cursor["seen"] += len(shares)
        if notice.take():
            print(f"{cursor['machine']}: notice at step {step}", flush=True)
            snapshots.write(f"notice-{step}")
        if step % 25 == 0:
            snapshots.write(f"step-{step}")
        if step == 600:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
