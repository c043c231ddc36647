"""Ventilation control of tunnels on several sites; statistics stay within a site."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SITES = {"valley": [0, 1, 2], "pass": [3]}
logger = logging.getLogger("ventilation")


class Topology:
    def __init__(self):
        self.rank = dist.get_rank()
        self.valley = dist.new_group(SITES["valley"])
        self.site, self.ranks = next((s, r) for s, r in SITES.items() if self.rank in r)
        self._local = None

    def local(self):
        """The group for statistics of this site."""
        if self._local is None:
            self._local = self.valley if len(self.ranks) > 1 else dist.new_group(self.ranks)
        return self._local


class Statistics:
    def __init__(self, topology):
        self.topology = topology

    def mean(self, value):
        value = value.detach().reshape(1).clone()
        dist.all_reduce(value, group=self.topology.local())
        return value.item() / len(self.topology.ranks)


class Evaluation:
    """Compares the sites; talks in a group of its own, apart from training."""

    def __init__(self, model):
        self.model = model
        self.group = dist.new_group()

    def __call__(self, seed=77):
        air = torch.rand(64, 10, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            score = self.model.module(air).mean().reshape(1)
        dist.all_reduce(score, group=self.group)
        return score.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    topology = Topology()
    statistics = Statistics(topology)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1), nn.Sigmoid()))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(topology.rank)
    evaluation = None
    for step in range(150):
        air = torch.rand(16, 10, generator=generator)
        time.sleep(0.05)
        loss = nn.functional.binary_cross_entropy(model(air), (air.mean(1, keepdim=True) > 0.5).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            logger.info("%s step %d loss %.4f", topology.site, step, statistics.mean(loss))
        if step % 50 == 49:
            evaluation = evaluation or Evaluation(model)
            logger.info("score %.3f", evaluation())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
