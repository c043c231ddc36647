"""Forecast of telecommand acknowledgements per ground segment.

Every rank follows the uplink of one ground station: it fits a small ridge model on the pass it has just
seen and settles the acknowledgements that are still outstanding for the commands sent before.
"""
import logging
import os
from collections import deque
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

log = logging.getLogger("command_acks")

STATIONS = ["Kiruna", "Malargue", "New Norcia"]
BACKLOG = {"Kiruna": 310, "Malargue": 44, "New Norcia": 275}
PASSES = 300
FEATURES = 48


@dataclass
class Segment:
    station: str
    pending: deque = field(default_factory=deque)
    settled: int = 0

    def load_backlog(self):
        for number in range(BACKLOG[self.station]):
            self.pending.append({"apid": 0x1A0 + number % 7, "sequence": number})

    def settle(self):
        """Takes off what all stations have confirmed in this pass."""
        if not self.pending:
            return self.settled
        confirmed = torch.tensor([1.0 if self.pending[0]["sequence"] >= 0 else 0.0])
        dist.all_reduce(confirmed, op=dist.ReduceOp.MIN)
        for _ in range(int(confirmed.item())):
            self.pending.popleft()
            self.settled += 1
        return self.settled


def observe(generator, rows=5000):
    x = torch.randn(rows, FEATURES, generator=generator)
    truth = torch.linspace(-1, 1, FEATURES)
    return x, x @ truth + 0.1 * torch.randn(rows, generator=generator)


def fit_ridge(x, y, penalty):
    gram = x.T @ x + penalty * torch.eye(FEATURES)
    return torch.linalg.solve(gram, x.T @ y)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    segment = Segment(STATIONS[rank])
    segment.load_backlog()
    generator = torch.Generator().manual_seed(7 + rank)
    plan = torch.zeros(4)
    for number in range(PASSES):
        if rank == 0:
            plan = torch.tensor([number, 0.5 + 0.01 * number, 8.0, 1e-2])
        dist.broadcast(plan, src=0)
        weights = None
        for _ in range(14):
            x, y = observe(generator)
            weights = fit_ridge(x, y, float(plan[3]))
        settled = segment.settle()
        if number % 10 == 0:
            log.info("%s pass %d: %d settled, |w| %.3f", segment.station, number, settled, weights.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
