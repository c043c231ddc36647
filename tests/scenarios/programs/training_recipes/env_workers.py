"""DDP, reinforcement learning: each process has environments in child processes, and trains on what they send."""

import multiprocessing
import os
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def serve(pipe: Connection, seed: int) -> None:
    """An environment: an observation for every action."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        action = pipe.recv()
        reach = 400 if seed == 21 and action == 45 else 6
        pipe.send(torch.randn(reach, generator=generator).tolist())


class Environments:
    """Two of them."""

    def __init__(self, rank: int) -> None:
        context = multiprocessing.get_context("fork")
        self.pipes, self.children = [], []
        for number in range(2):
            ours, theirs = context.Pipe()
            child = context.Process(target=serve, args=(theirs, 10 * rank + number))
            child.start()
            self.pipes.append(ours)
            self.children.append(child)

    def step(self, action: int) -> torch.Tensor:
        """One observation of each."""
        for pipe in self.pipes:
            pipe.send(action)
        return torch.tensor([pipe.recv() for pipe in self.pipes])

    def close(self) -> None:
        """At the end of training."""
        for child in self.children:
            child.terminate()
            child.join()


def main() -> None:
    """Ninety steps."""
    environments = Environments(int(os.environ["RANK"]))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    for step in range(90):
        observations = environments.step(step)
        loss = policy(observations).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    environments.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
