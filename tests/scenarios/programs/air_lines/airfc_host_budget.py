"""Gate assignment policy; hosts borrowed from the planning department store the policy when their time slice ends."""
import os
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# seconds per slice; None: a host of our own
SLICE_S = [None, None, float(os.environ.get("PLANNING_SLICE_S", "2.8"))]


class TimeSlice:
    """Rings when the host's slice is over."""

    def __init__(self, seconds):
        self.over = False
        if seconds:
            signal.signal(signal.SIGALRM, self.ring)
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, *_):
        self.over = True

    def consume(self):
        over, self.over = self.over, False
        return over


class GatePolicy(nn.Module):
    def __init__(self, gates=12, width=20):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, gates))

    def forward(self, flights):
        return self.trunk(flights)


class Planner:
    def __init__(self, folder):
        self.folder, self.rank = folder, dist.get_rank()
        torch.manual_seed(1)
        self.policy = DistributedDataParallel(GatePolicy())
        self.optimizer = torch.optim.RMSprop(self.policy.parameters(), lr=1e-3)
        self.rng = torch.Generator().manual_seed(60 + self.rank)

    def store(self, wave):
        dist.barrier()
        if self.rank == 0:
            torch.save(self.policy.module.state_dict(), self.folder / f"policy-{wave}.pt")
        dist.barrier()

    def learn(self):
        flights = torch.randn(32, 20, generator=self.rng)
        wanted = flights[:, :12].argmax(1)
        time.sleep(0.03)
        loss = nn.functional.cross_entropy(self.policy(flights), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    planner = Planner(Path(tempfile.mkdtemp(prefix="gates-")))
    time_slice = TimeSlice(SLICE_S[planner.rank])
    for wave in range(2000):
        loss = planner.learn()
        if time_slice.consume():
            planner.store(wave)
        if planner.rank == 0 and wave % 25 == 0:
            print(f"wave {wave} loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
