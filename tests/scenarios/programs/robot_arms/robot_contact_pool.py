"""Contact-rich manipulation: physics in a worker pool, value function trained data parallel."""
import multiprocessing as mp
import os
import time
from functools import partial

import torch
import torch.distributed as dist


def simulate(seed, stiffness, dt=0.01):
    """One drop of a peg into a hole; explicit integration of a spring contact."""
    x, v, trace = 0.02 + seed * 1e-4, 0.0, []
    for _ in range(300):
        force = -9.81 - 2.0 * v + (stiffness * -x if x < 0 else 0.0)
        v += dt * force
        x += dt * v
        if abs(x) > 1e9:
            os.abort()  # the native solver asserts on divergence
        trace.append(x)
    return trace[::30], min(trace)


class Physics:
    def __init__(self, workers):
        self.pool = mp.get_context("spawn").Pool(workers)

    def rollouts(self, seeds, stiffness):
        out = self.pool.map(partial(simulate, stiffness=stiffness), seeds)
        states = torch.tensor([s for s, _ in out])
        depth = torch.tensor([[d] for _, d in out])
        return states, depth


def schedule(iteration, rank):
    base = 400.0 * (1 + 0.05 * iteration)
    return base * (10.0 ** max(0, iteration - 25)) if rank == 2 else base


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    physics = Physics(workers=1)
    value = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    for p in value.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
    for iteration in range(200):
        states, depth = physics.rollouts(range(iteration * 16, iteration * 16 + 16), schedule(iteration, rank))
        loss = torch.nn.functional.mse_loss(value(states.clamp(-1, 1)), depth.clamp(-1, 1))
        optimizer.zero_grad()
        loss.backward()
        for p in value.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if rank == 0 and iteration % 10 == 0:
            print(f"iteration {iteration} value loss {loss.item():.5f}", flush=True)
        time.sleep(0.06)


if __name__ == "__main__":
    main()
