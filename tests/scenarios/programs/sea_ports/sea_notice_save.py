"""Ice class advisor: classifies routes by ice chart. Nodes of the fleet partition may be drained for maintenance."""
import json
import os
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
CLASSES = ("IC", "IB", "IA", "IA Super")


class Maintenance:
    """Stands for the scheduler's agent on the node: sends SIGUSR1 ahead of a drain."""

    def __init__(self, plan):
        self.plan = plan

    def watch(self, node):
        delay = self.plan.get(str(node))
        if delay:
            notice = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGUSR1))
            notice.daemon = True
            notice.start()


class Advisor:
    def __init__(self, local, folder):
        self.rank = dist.get_rank()
        self.folder = Path(folder)
        net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, len(CLASSES)))
        self.model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[local])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.route = 0

    def save(self):
        """One file for the job; it has to be whole before anybody goes on."""
        if self.rank == 0:
            state = {k: v.cpu() for k, v in self.model.module.state_dict().items()}
            torch.save({"route": self.route, "model": state}, self.folder / "advisor.pt")
        dist.barrier()

    @contextmanager
    def saved_on_notice(self):
        previous = signal.signal(signal.SIGUSR1, lambda number, frame: self.save())
        try:
            yield self
        finally:
            signal.signal(signal.SIGUSR1, previous)

    def learn(self, charts):
        ice = torch.rand(charts, 30)
        wanted = (ice.mean(1) * 8).long().clamp(2, 5) - 2
        loss = nn.functional.cross_entropy(self.model(ice.cuda()), wanted.cuda())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.route += 1
        return loss.item()


def main():
    plan = json.loads(os.environ.get("DRAIN_PLAN", '{"1": 3.5}'))
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    advisor = Advisor(local, tempfile.mkdtemp(prefix="ice-"))
    with advisor.saved_on_notice():
        Maintenance(plan).watch(local)
        for route in range(1200):
            time.sleep(0.05)  # next chart from the ice service
            value = advisor.learn(charts=12)
            if route % 200 == 199:
                advisor.save()
            if route % 20 == 0 and advisor.rank == 0:
                print(f"route {route}: {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
