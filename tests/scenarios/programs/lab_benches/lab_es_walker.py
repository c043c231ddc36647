"""OpenAI-style evolution strategy for a planar walker. Each rank tries its own perturbations of a common policy."""

import math
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
OBSERVATIONS, ACTIONS, PAIRS = 6, 2, 4
SIZE = OBSERVATIONS * ACTIONS


class Walker:
    """A stiff two-link body, integrated with explicit steps. It may fall."""

    def __init__(self, stiffness):
        self.stiffness = stiffness

    def episode(self, weights, length=30):
        policy = weights.view(ACTIONS, OBSERVATIONS)
        angle, speed, reward = [0.1, -0.1], [0.0, 0.0], 0.0
        for t in range(length):
            seen = torch.tensor([*angle, *speed, math.sin(t / 3), 1.0])
            torque = torch.tanh(policy @ seen).tolist()
            for i in range(2):
                speed[i] += 0.05 * (torque[i] - self.stiffness * angle[i] - 0.3 * speed[i])
                angle[i] += 0.05 * speed[i]
            if max(map(abs, angle)) > 1.5:
                return math.nan
            reward += speed[0] - 0.1 * abs(angle[1])
        return reward


class Strategy:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.mean = torch.zeros(SIZE)
        self.sigma, self.rate = 0.2, 0.05
        self.noise = torch.Generator().manual_seed(rank * 101 + 5)
        self.fallen = 0

    def generation(self, body):
        """One generation: returns the best reward of the whole population."""
        directions = torch.randn(PAIRS, SIZE, generator=self.noise)
        plus = torch.tensor([body.episode(self.mean + self.sigma * d) for d in directions])
        minus = torch.tensor([body.episode(self.mean - self.sigma * d) for d in directions])
        alive = torch.isfinite(plus) & torch.isfinite(minus)
        if not alive.any():
            self.fallen += 1
            return None
        gradient = ((plus - minus)[alive, None] * directions[alive]).sum(0)
        shares = [torch.empty(SIZE) for _ in range(self.world)]
        dist.all_gather(shares, gradient)
        self.mean += self.rate * torch.stack(shares).mean(0) / (PAIRS * self.sigma)
        return plus[alive].max().item()


def bodies(rank):
    """A curriculum of bodies: softer from rank to rank, and now and then one with a loose joint."""
    number = 0
    while True:
        loose = rank == 2 and number == 66
        yield Walker(stiffness=-60.0 if loose else 2.0 + 0.1 * rank)
        number += 1


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    strategy = Strategy(rank, world)
    for number, body in zip(range(1, 501), bodies(rank)):
        best = strategy.generation(body)
        if number % 40 == 0:
            summary = torch.tensor([-math.inf if best is None else best, float(strategy.fallen)])
            dist.reduce(summary, dst=0, op=dist.ReduceOp.MAX)
            if rank == 0:
                print(f"generation {number}: best {summary[0]:.3f}, most falls {int(summary[1])}", flush=True)
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
