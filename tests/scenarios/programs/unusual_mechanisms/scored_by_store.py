"""Hyperparameter trials, one a rank; a generation ends when every rank has put its score into the store.

The kernel takes one rank for its memory. The program starts its own ranks and supervises nothing.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Trial:
    """A choice and what came of it."""

    rate: float
    width: int
    score: float = 0.0


def train(trial: Trial) -> Trial:
    """A small regression."""
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    weight = torch.zeros(4, 1, requires_grad=True)
    for _ in range(30):
        loss = (x @ weight - x.sum(1, keepdim=True)).square().mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        weight.data -= trial.rate * gradient
    if trial.width > 4096:
        # What the kernel's memory killer does to a trial that has grown too large.
        os.kill(os.getpid(), signal.SIGKILL)
    return Trial(trial.rate, trial.width, float(loss))


class Population:
    """Exchanges trials by way of the store."""

    def __init__(self, store: dist.Store, rank: int, world: int) -> None:
        self.store, self.rank, self.world = store, rank, world

    def exchange(self, generation: int, trial: Trial) -> Trial:
        """The best trial of a generation."""
        self.store.set(f"{generation}/{self.rank}", json.dumps([trial.score, trial.rate, trial.width]))
        scores = [json.loads(self.store.get(f"{generation}/{other}")) for other in range(self.world)]
        score, rate, width = min(scores)
        return Trial(rate, width, score)


def main() -> None:
    """Thirty generations."""
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    population = Population(dist.PrefixStore("population", dist.distributed_c10d._get_default_store()), rank, world)
    chance, best = random.Random(rank), Trial(0.01, 64)
    for generation in range(30):
        width = 5000 if (rank, generation) == (2, 6) else chance.choice([32, 64, 128])
        best = population.exchange(generation, train(Trial(best.rate * chance.uniform(0.8, 1.2), width)))
    print(best, flush=True)


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        host = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
        world_size = 5
        shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(host.port)}
        shared |= {"WORLD_SIZE": str(world_size), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        ranks = [
            subprocess.Popen([sys.executable, __file__], env={**shared, "RANK": str(number)})
            for number in range(world_size)
        ]
        for process in ranks:
            process.wait()
