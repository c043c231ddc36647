"""Queue lengths over the whole resort, on machines that are lent: who is called back saves what it has so far."""
import logging
import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("resort")
# seconds for which the owner has lent each machine
LEASES = {"webcam-pc": 7200, "ticket-office": 7200, "ski-school": 4, "patrol-hut": 7200}


class Lease:
    called_back = False

    def __init__(self, host: str):
        self.host = host

    def _ring(self, signum, frame):
        self.called_back = True

    @contextmanager
    def running(self):
        previous = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, LEASES[self.host])
        try:
            yield self
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)


class Resort:
    """Parameters are alike everywhere; each machine keeps the momentum of its own quarter."""

    def __init__(self, rank: int, world: int):
        torch.manual_seed(6)
        self.rank, self.world = rank, world
        self.weight = nn.Parameter(torch.randn(64, 8) * 0.1)
        self.momentum = torch.zeros(64 // world, 8)
        self.g = torch.Generator().manual_seed(500 + rank)

    def quarter(self, tensor):
        return tensor.chunk(self.world)[self.rank]

    def observe(self):
        area = torch.rand(32, 130, 130, generator=self.g)
        for _ in range(3):
            area = torch.tanh(torch.bmm(area, area) / 40)
        x = area[:, 0, :64]
        return x, x[:, :8] * 3 - x[:, 8:16]

    def step(self) -> float:
        x, queue = self.observe()
        loss = nn.functional.mse_loss(x @ self.weight, queue)
        loss.backward()
        dist.all_reduce(self.weight.grad)
        with torch.no_grad():
            self.momentum.mul_(0.9).add_(self.quarter(self.weight.grad) / self.world)
            fresh = (self.quarter(self.weight) - 0.05 * self.momentum).contiguous()
            parts = [torch.empty_like(fresh) for _ in range(self.world)]
            dist.all_gather(parts, fresh)
            self.weight.copy_(torch.cat(parts))
        self.weight.grad = None
        return loss.item()


def save(resort: Resort, step: int) -> None:
    folder = Path(tempfile.gettempdir()) / f"resort-{os.getpid()}"
    pieces = [None] * resort.world if resort.rank == 0 else None
    log.info("saving step %d", step)
    dist.barrier()
    dist.gather_object(resort.momentum, pieces, dst=0)
    if pieces is not None:
        folder.mkdir(exist_ok=True)
        torch.save({"weight": resort.weight.detach(), "momentum": torch.cat(pieces)}, folder / "resort.pt")


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    host = list(LEASES)[rank]
    resort = Resort(rank, world)
    with Lease(host).running() as lease:
        for step in range(1, 20_001):
            loss = resort.step()
            if step % 25 == 0:
                log.info("%s step %d loss %.4f", host, step, loss)
            if step % 5000 == 0 or lease.called_back:
                lease.called_back = False
                save(resort, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
