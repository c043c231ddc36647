"""Crew and gate costs of three hubs, settled over separate groups so that the ledgers do not mix."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

logger = logging.getLogger("hubs")


@dataclass
class Ledger:
    name: str
    group: object
    costs: torch.Tensor
    backlog: int = 0

    def settle(self):
        total = self.costs.clone()
        dist.all_reduce(total, group=self.group)
        self.costs.zero_()
        self.backlog = 0
        return total.sum().item()


class Hub:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.rng = torch.Generator().manual_seed(70 + rank)
        self.gates = Ledger("gates", dist.new_group(), torch.zeros(8))
        self.crews = Ledger("crews", dist.new_group(), torch.zeros(8))
        torch.manual_seed(4)
        self.policy = nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.02)

    def plan(self, wave):
        """One wave of departures: the policy's costs, gradients shared by all hubs."""
        demand = torch.rand(16, 8, generator=self.rng)
        time.sleep(0.05)
        loss = (self.policy(demand) - demand.flip(1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.optimizer.step()
        self._book(wave, demand.mean(0))
        return loss.item()

    def _book(self, wave, costs):
        self.gates.costs += costs
        self.gates.backlog += 3
        self.crews.costs += costs.flip(0)
        # Crews that ran out of hours are replaced from standby, which makes a second entry.
        strained = self.rank == 1 and wave > 48
        self.crews.backlog += 5 if strained else 2

    def settle(self):
        """The longest backlog first, as the accountants like it."""
        for ledger in sorted((self.gates, self.crews), key=lambda l: l.backlog, reverse=True):
            amount = ledger.settle()
            if self.rank == 0:
                logger.info("%s settled, %.2f", ledger.name, amount)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    hub = Hub(dist.get_rank(), dist.get_world_size())
    for wave in range(1, 121):
        hub.plan(wave)
        if wave % 20 == 0:
            hub.settle()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
