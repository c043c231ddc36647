"""The first process evaluates and three others train. Those who train have a group; checkpoints go through one of all."""

import datetime

import torch
import torch.distributed as dist
from torch import nn

EVALUATOR = 0


class Replica:
    """The model, and the groups it is in."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.trains = self.rank != EVALUATOR
        torch.manual_seed(0)
        self.net = nn.Linear(8, 2)
        if self.trains:
            self.trainers = dist.new_group([r for r in range(dist.get_world_size()) if r != EVALUATOR])
        dist.barrier()
        self.everyone = dist.new_group(timeout=datetime.timedelta(hours=2))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Gradients are averaged over those who train."""
        optimizer.zero_grad()
        self.net(torch.randn(16, 8)).square().mean().backward()
        for parameter in self.net.parameters():
            dist.all_reduce(parameter.grad, group=self.trainers)
            parameter.grad /= dist.get_world_size(self.trainers)
        optimizer.step()

    def share(self) -> None:
        """The evaluator gets the weights."""
        for parameter in self.net.parameters():
            dist.broadcast(parameter.data, src=1, group=self.everyone)


def main() -> None:
    """Ten rounds."""
    dist.init_process_group("gloo")
    replica = Replica()
    optimizer = torch.optim.SGD(replica.net.parameters(), lr=0.1)
    for number in range(10):
        if replica.trains:
            for _ in range(20):
                replica.step(optimizer)
        replica.share()
        if replica.rank == EVALUATOR:
            print(f"round {number}: {replica.net(torch.ones(1, 8)).norm().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
