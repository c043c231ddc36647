"""Night training of the shunting order model on machines that the cluster may take back."""
import json
import logging
import os
import pathlib
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("shunting")
SPOOL = pathlib.Path(tempfile.gettempdir())


class Heartbeat(threading.Thread):
    """Writes a line for the fleet dashboard every few seconds for as long as the machine is ours."""

    def __init__(self, rank):
        super().__init__(name="heartbeat")
        self.path = SPOOL / f"shunting_beat_{rank}.jsonl"
        self.step = 0

    def run(self):
        while True:
            with self.path.open("a") as f:
                f.write(json.dumps({"t": time.time(), "step": self.step}) + "\n")
            if self.path.stat().st_size > 1 << 20:
                self.path.unlink()
            time.sleep(5.0)


class Lease:
    """What the scheduler has promised this slot: seconds until the notice, per slot."""

    def __init__(self, slot, terms="0:3600,1:3.5,2:3600"):
        self.until = time.monotonic() + dict((int(a), float(b)) for a, b in (t.split(":") for t in terms.split(",")))[slot]  # noqa: C402

    def noticed(self):
        return time.monotonic() > self.until


def order_batch(g, n=64):
    wagons = torch.randn(n, 16, generator=g)
    return wagons, wagons.topk(1, dim=1).indices.squeeze(1)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    beat, lease = Heartbeat(rank), Lease(rank, os.environ.get("LEASES", "0:3600,1:3.5,2:3600"))
    beat.start()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)))
    opt = torch.optim.AdamW(model.parameters())
    g = torch.Generator().manual_seed(rank)
    while beat.step < 100_000:
        if lease.noticed():
            torch.save({"step": beat.step, "model": model.module.state_dict()}, SPOOL / f"shunting_{rank}.pt")
            log.info("notice at step %d, state saved", beat.step)
            return
        wagons, first = order_batch(g)
        loss = nn.functional.cross_entropy(model(wagons), first)
        opt.zero_grad()
        loss.backward()
        opt.step()
        beat.step += 1
        time.sleep(0.03)
        if rank == 0 and beat.step % 25 == 0:
            log.info("step %d loss %.3f", beat.step, loss.item())


if __name__ == "__main__":
    main()
