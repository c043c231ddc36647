"""Asynchronous actor-critic: an actor plays with slightly old weights, two learners train on what it sends."""

import io
import multiprocessing
import os
import socket
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Config:
    per_update: int = 8
    max_lag: int = 2
    warmup_updates: int = 6
    late_batch: int = 12
    updates: int = 200
    horizon: int = 16

    def batch_size(self, update: int) -> int:
        return self.per_update if update < self.warmup_updates else self.late_batch


def new_policy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


def pack(policy: nn.Module) -> bytes:
    buffer = io.BytesIO()
    torch.save(policy.state_dict(), buffer)
    return buffer.getvalue()


class Actor:
    def __init__(self, config: Config, episodes, weights) -> None:
        self.config, self.episodes, self.weights = config, episodes, weights
        self.policy, self.version, self.made = new_policy(), 0, 0

    def limit(self) -> int:
        return (self.version + self.config.max_lag) * self.config.per_update

    @torch.no_grad()
    def play(self) -> list[list[float]]:
        state, steps = torch.zeros(4), []
        for _ in range(self.config.horizon):
            action = torch.distributions.Categorical(logits=self.policy(state)).sample()
            state = 0.9 * state + 0.1 * torch.randn(4) + 0.05 * action
            steps.append([*state.tolist(), float(action)])
        time.sleep(0.03)
        return steps

    def run(self) -> None:
        torch.set_num_threads(1)
        while True:
            while self.made >= self.limit():
                self.version, state = self.weights.get()
                self.policy.load_state_dict(torch.load(io.BytesIO(state)))
            self.episodes.put(self.play())
            self.made += 1


def learn(rank: int, world: int, config: Config, episodes, weights) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    policy = DistributedDataParallel(new_policy())
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for update in range(config.updates):
        batch = [None]
        if rank == 0:
            batch = [[episodes.get() for _ in range(config.batch_size(update))]]
        dist.broadcast_object_list(batch, src=0)
        data = torch.tensor(batch[0][rank::world])
        chosen = policy(data[..., :4]).log_softmax(-1).gather(-1, data[..., 4:].long())
        loss = -(chosen.squeeze(-1) * data[..., 0]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            weights.put((update + 1, pack(policy.module)))
            print(f"update {update}: {len(batch[0])} episodes, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    ctx = multiprocessing.get_context("fork")
    config, episodes, weights = Config(), ctx.Queue(), ctx.Queue()
    actor = ctx.Process(target=Actor(config, episodes, weights).run, name="actor", daemon=True)
    learners = [ctx.Process(target=learn, args=(rank, 2, config, episodes, weights)) for rank in range(2)]
    for process in (actor, *learners):
        process.start()
    for process in learners:
        process.join()
    actor.terminate()
