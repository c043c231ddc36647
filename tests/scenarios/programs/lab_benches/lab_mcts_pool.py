"""Self-play for a small board game: a tree search runs in the background while the network trains on the last game."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
CELLS = 9


class Evaluator:
    """Values of positions; asks the network for those that are not in its table."""

    def __init__(self, net):
        self.net, self.table = net, {}

    @torch.no_grad()
    def __call__(self, position):
        if position not in self.table:
            self.table[position] = self.net(torch.tensor(position, dtype=torch.float))[0].item()
        return self.table[position]


class Search:
    """Searches on a pool of threads, which it shares with whoever wants something done in the background."""

    def __init__(self, pool, evaluator, seed):
        self.pool, self.evaluator = pool, evaluator
        self.random = random.Random(seed)

    def rollout(self, position, mover):
        values = []
        while 0 in position:
            free = [cell for cell in range(CELLS) if position[cell] == 0]
            cell = self.random.choice(free)
            position = position[:cell] + (mover,) + position[cell + 1 :]
            values.append(self.evaluator(position) * mover)
            mover = -mover
        return sum(values) / len(values) if values else 0.0

    def visit(self, position, mover, simulations):
        return [self.rollout(position, mover) for _ in range(simulations)]

    def targets(self, position, simulations):
        """The mean value of a position. Many simulations are split, so that no task holds a thread for long."""
        if simulations <= 16:
            values = self.visit(position, 1, simulations)
        else:
            halves = [self.pool.submit(self.visit, position, 1, simulations // 2) for _ in range(2)]
            values = [value for half in halves for value in half.result()]
        return position, sum(values) / len(values)


def openings(rank, games):
    generator = random.Random(rank)
    for game in range(games):
        position = [0] * CELLS
        position[generator.randrange(CELLS)] = 1
        yield game, tuple(position)


def simulations_for(game, rank):
    """Later games are searched deeper; the ranks change at different times, for the sake of variety."""
    return 8 if game < 40 + 20 * ((rank + 2) % 3) else 24


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh(), nn.Linear(32, 1))
    evaluator = Evaluator(nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh(), nn.Linear(32, 1)))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="search") as pool:
        search = Search(pool, evaluator, rank)
        for game, opening in openings(rank, 400):
            pending = pool.submit(search.targets, opening, simulations_for(game, rank))
            time.sleep(0.05)
            position, value = pending.result()
            loss = (model(torch.tensor(position, dtype=torch.float)) - value).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and game % 10 == 0:
                print(f"game {game}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
