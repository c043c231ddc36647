"""Federated rounds on machines of differing size: the smallest takes seconds for its share of every round.

Everything moves; two ranks always wait for the third. Started by a launcher that does not supervise.
"""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Machine:
    """How long a machine takes for its share."""

    name: str
    seconds: float


MACHINES = (Machine("large", 0.1), Machine("larger", 0.05), Machine("small", 4.0))


class Client:
    """Trains on what it has, and averages weights after each round."""

    def __init__(self, machine: Machine) -> None:
        torch.manual_seed(0)
        self.machine, self.net = machine, nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def local_round(self) -> int:
        """Local steps, as fast as the machine is."""
        steps, until = 0, time.monotonic() + self.machine.seconds
        while time.monotonic() < until:
            x = torch.randn(64, 10)
            self.optimizer.zero_grad()
            (self.net(x).squeeze(1) - x.sum(1)).square().mean().backward()
            self.optimizer.step()
            steps += 1
        return steps

    def federate(self) -> None:
        """The mean of everybody's weights."""
        flat = nn.utils.parameters_to_vector(self.net.parameters()).detach()
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), self.net.parameters())


def main() -> None:
    """Seven rounds."""
    dist.init_process_group("gloo")
    client = Client(MACHINES[int(os.environ["RANK"])])
    for _ in range(7):
        client.local_round()
        client.federate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
