"""Stowage stability: learns metacentric height from bay plans. Plans are unpacked once per voyage on the node's disk."""
import json
import logging
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
logger = logging.getLogger("stowage")

ROTATION = {  # voyages in order of their calls, by berth
    0: ["014E", "022W", "031E", "045W", "052E"],
    1: ["017W", "026E", "017W", "048E", "055W"],
    2: ["019E", "028W", "036E", "041W", "058E"],
}


class PlanRepository:
    """Unpacked bay plans below one folder; returns once all berths have theirs on disk."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def fetch(self, voyage):
        path = self.folder / f"{voyage}.json"
        if path.exists():
            return json.loads(path.read_text())
        plan = self._unpack(voyage)
        path.write_text(json.dumps(plan))
        dist.barrier()
        return plan

    @staticmethod
    def _unpack(voyage, bays=20):
        rng = random.Random(voyage)
        time.sleep(0.1)
        return [[rng.uniform(2, 30) for _ in range(18)] for _ in range(bays)]


class StabilityModel(nn.Module):
    def __init__(self, tiers=18):
        super().__init__()
        self.tiers = nn.Linear(tiers, 32)
        self.gm = nn.Linear(32, 1)

    def forward(self, bays):
        return self.gm(torch.tanh(self.tiers(bays)))


def learn(model, optimizer, plan, epochs=25):
    bays = torch.tensor(plan)
    height = (bays * torch.linspace(1, 0, bays.shape[1])).mean(1, keepdim=True)
    bays, height = bays.cuda(), height.cuda()
    value = 0.0
    for _ in range(epochs):
        time.sleep(0.05)  # pace of the planner's feed
        loss = nn.functional.mse_loss(model(bays), height)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
    return value


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    berth = dist.get_rank()
    plans = PlanRepository(tempfile.mkdtemp(prefix=f"plans-{berth}-"))
    model = nn.parallel.DistributedDataParallel(StabilityModel().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for call, voyage in enumerate(ROTATION[berth]):
        value = learn(model, optimizer, plans.fetch(voyage))
        logger.info("berth %d call %d voyage %s: %.3f", berth, call, voyage, value)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
