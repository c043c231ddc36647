"""Value of flight routes for pollination robots. Routes are flown in a pool of simulators, the results come in a queue."""
import logging
import math
import queue
import random
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("pollen")


class House:
    """Positions of open blossoms; the beds close one after another in the evening."""

    def __init__(self, number, blossoms=60):
        self.rng = random.Random(number)
        self.spots = [(self.rng.random(), self.rng.random()) for _ in range(blossoms)]
        self.closing = {0: 0, 1: 1, 2: 0}.get(number, 0)

    def evening(self):
        del self.spots[: self.closing]

    def plan(self):
        return self.rng.sample(self.spots, min(8, len(self.spots)))


def fly(route):
    """Simulated flight: length and smoothness of a route, as features and value."""
    legs = [math.dist(a, b) for a, b in zip(route, route[1:])]
    torch.linalg.svd(torch.rand(140, 140))  # wind field
    mean = sum(legs) / len(legs)
    legs += [0.0] * (7 - len(legs))
    return torch.tensor(legs), torch.tensor([mean])


class Fleet:
    def __init__(self, house, robots=2):
        self.house = house
        self.pool = ThreadPoolExecutor(robots, thread_name_prefix="robot")
        self.landed = queue.Queue()

    def _landed(self, future):
        try:
            self.landed.put(future.result())
        except Exception as e:
            log.warning("route given up: %r", e)

    def round(self, flights=4):
        for _ in range(flights):
            self.pool.submit(fly, self.house.plan()).add_done_callback(self._landed)
        back = [self.landed.get() for _ in range(flights)]
        self.house.evening()
        legs, values = zip(*back)
        return torch.stack(legs), torch.stack(values)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    number = dist.get_rank()
    torch.manual_seed(1)
    fleet = Fleet(House(number))
    critic = DDP(nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for turn in range(120):
        legs, values = fleet.round()
        loss = nn.functional.mse_loss(critic(legs), values)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if turn % 20 == 0:
            log.info("house %d turn %d loss %.4f", number, turn, loss.item())
    fleet.pool.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
