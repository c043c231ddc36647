"""Two learners as Ray actors, and a driver which runs them in rounds."""

import os
import secrets
import socket
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # this cluster's own, not kept in the home folder

import ray
import torch
import torch.distributed as dist
from torch import nn

WORLD, ROUNDS, STEPS_PER_ROUND = 2, 6, 4


@ray.remote(num_cpus=1)
class Learner:
    def __init__(self, rank: int, world: int, address: str) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
        torch.manual_seed(0)
        self.rank = rank
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.data = torch.Generator().manual_seed(100 + rank)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(32, 8, generator=self.data)
        return x, x.sum(1, keepdim=True)

    def learn(self, steps: int) -> float:
        for _ in range(steps):
            x, y = self.batch()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 0.05 * parameter.grad / dist.get_world_size()
                parameter.grad = None
            time.sleep(0.05)
        return loss.item()

    @torch.no_grad()
    def validate(self) -> float:
        x, y = self.batch()
        total = nn.functional.mse_loss(self.model(x), y)
        dist.all_reduce(total, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        return total.item() / dist.get_world_size()


class Trainer:
    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        self.learners = [Learner.remote(rank, WORLD, address) for rank in range(WORLD)]

    def everywhere(self, method: str, *args) -> list:
        return ray.get([getattr(learner, method).remote(*args) for learner in self.learners])

    def scores(self) -> dict[int, float]:
        return {rank: ray.get(learner.validate.remote()) for rank, learner in enumerate(self.learners)}

    def fit(self) -> None:
        for number in range(1, ROUNDS + 1):
            losses = self.everywhere("learn", STEPS_PER_ROUND)
            print(f"round {number}: loss {sum(losses) / len(losses):.3f}", flush=True)
        print("validation", self.scores(), flush=True)


if __name__ == "__main__":
    ray.init(num_cpus=WORLD, include_dashboard=False, log_to_driver=False)
    Trainer().fit()
    ray.shutdown()
