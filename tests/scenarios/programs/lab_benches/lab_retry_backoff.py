"""Plasma control with a simulator behind a socket-like call that is busy at times, and is tried again, later and later."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Busy(Exception):
    pass


class Simulator:
    """Shots of a tokamak. There is maintenance once, in which it refuses for a while."""

    def __init__(self, rank, maintenance):
        self.generator = torch.Generator().manual_seed(rank)
        self.maintenance, self.calls, self.until = maintenance, 0, None

    def shot(self, n=16):
        self.calls += 1
        if self.calls == self.maintenance:
            self.until = time.monotonic() + 11
        if self.until is not None and time.monotonic() < self.until:
            raise Busy("maintenance")
        state = torch.randn(n, 6, generator=self.generator)
        time.sleep(0.04)
        return state, torch.tanh(state.sum(-1, keepdim=True))


def with_retries(call, attempts=8, first=0.25):
    """Calls, and after a refusal waits: twice as long each time, with some jitter."""
    jitter = random.Random(0)
    for attempt in range(attempts):
        try:
            return call()
        except Busy as reason:
            pause = first * 2**attempt * jitter.uniform(0.9, 1.1)
            print(f"{reason}, again in {pause:.1f} s", flush=True)
            time.sleep(pause)
    raise TimeoutError(f"no answer after {attempts} attempts")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    simulator = Simulator(rank, maintenance=40 if rank == 1 else None)
    for step in range(90):
        state, response = with_retries(simulator.shot)
        loss = (model(state) - response).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 15 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
