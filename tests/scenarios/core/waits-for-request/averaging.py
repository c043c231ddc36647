"""Three Ray actors in a Gloo group of their own: the driver has them average their weights, again and again."""

from __future__ import annotations

import argparse
import os
import socket
import time

import ray
import torch
import torch.distributed as dist


@ray.remote(num_cpus=0)
class Learner:
    def __init__(self, rank: int, world_size: int, port: int) -> None:
        self.rank, self.world_size, self.port = rank, world_size, port
        self.weights = torch.ones(16) * rank

    def join(self) -> None:
        method = f"tcp://127.0.0.1:{self.port}"
        dist.init_process_group("gloo", init_method=method, rank=self.rank, world_size=self.world_size)

    def average(self) -> float:
        dist.all_reduce(self.weights)
        self.weights /= self.world_size
        return float(self.weights[0])

    def evaluate(self) -> float:
        scores = [torch.zeros(1) for _ in range(self.world_size)]
        dist.all_gather(scores, self.weights[:1])
        return float(sum(scores))


def score_samples(seconds: float) -> float:
    end, best = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        best = max(best, float(torch.randn(512).norm()))
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--busy", type=int, default=-1)
    parser.add_argument("--one-by-one", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--score", type=float, default=0.0)
    parser.add_argument("--address")
    options = parser.parse_args()
    if options.address:
        ray.init(address=options.address)
    else:
        # A worker has the environment in which the cluster was started; what else it is to have, the job says.
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "HANGWATCH_RUN_DIR") if name in os.environ}
        ray.init(num_cpus=1, object_store_memory=80_000_000, include_dashboard=False, runtime_env={"env_vars": kept})
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    learners = [Learner.remote(rank, 3, port) for rank in range(3)]
    ray.get([learner.join.remote() for learner in learners])
    for step in range(8):
        if step == 4:
            time.sleep(options.pause)
        free_ones = [learner for rank, learner in enumerate(learners) if step != 5 or rank != options.busy]
        averages = []
        for rank, learner in enumerate(free_ones):
            if step == 5 and rank == 2:
                score_samples(options.score)
            averages.append(learner.average.remote())
        print(f"step {step}: {ray.get(averages)[0]:.3f}", flush=True)
    if options.one_by_one:
        print([ray.get(learner.evaluate.remote()) for learner in learners], flush=True)
    else:
        print(ray.get([learner.evaluate.remote() for learner in learners]), flush=True)
    ray.shutdown()
