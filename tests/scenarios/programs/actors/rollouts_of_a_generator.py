"""Two trainers of a policy, Ray actors in a Gloo group; trainer 0 asks a third actor for rollouts, and shares their rewards."""

from __future__ import annotations

import argparse
import os
import socket
import time

import ray
import torch
import torch.distributed as dist


@ray.remote(num_cpus=0)
class Generator:
    def __init__(self, slow_at: int, seconds: float) -> None:
        self.slow_at, self.seconds, self.asked = slow_at, seconds, 0

    def generate(self, prompts: int) -> torch.Tensor:
        if self.asked == self.slow_at:
            time.sleep(self.seconds)  # a tool that the policy calls takes its time
        self.asked += 1
        return torch.rand(prompts)


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self, rank: int, port: int, generator: Generator) -> None:
        self.rank, self.generator = rank, generator
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

    def fit(self, steps: int) -> float:
        weights = torch.zeros(16)
        for _ in range(steps):
            rewards = torch.zeros(16)
            if self.rank == 0:
                rewards.copy_(ray.get(self.generator.generate.remote(16)))
            dist.broadcast(rewards, src=0)
            weights += 0.1 * rewards
            dist.all_reduce(weights)
            weights /= 2
            time.sleep(0.1)
        return float(weights.sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow-at", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=14.0)
    options = parser.parse_args()
    # A worker has the environment in which the cluster was started; what else it is to have, the job says.
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "HANGWATCH_RUN_DIR") if name in os.environ}
    ray.init(num_cpus=1, object_store_memory=80_000_000, include_dashboard=False, runtime_env={"env_vars": kept})
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    generator = Generator.remote(options.slow_at, options.seconds)
    trainers = [Trainer.remote(rank, port, generator) for rank in range(2)]
    print(ray.get([trainer.fit.remote(8) for trainer in trainers]), flush=True)
    ray.shutdown()
