"""Junction control: a dispatcher (rank 0) and the two approach controllers, trained together; approaches hand trains over."""
import argparse
import collections
import random
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Train = collections.namedtuple("Train", "number length delay freight")


class Approach:
    """One side of the junction: its queue, and a little policy for who goes first."""

    def __init__(self, rank, seed):
        self.rank = rank
        self.rng = random.Random(seed)
        self.queue = [self.arrival() for _ in range(9 if rank == 1 else 4)]

    def arrival(self):
        return Train(self.rng.randrange(10000), self.rng.randint(80, 740), self.rng.expovariate(0.3), self.rng.random() < 0.4)

    def tick(self, hour):
        # the morning flows one way, the rest of the day evens out
        rate = (0.9, 0.5) if hour < 60 else (0.5, 0.9)
        if self.rng.random() < rate[self.rank - 1]:
            self.queue.append(self.arrival())
        if len(self.queue) > 12:
            self.queue.pop(0)

    def state(self):
        rows = [[t.length / 740, min(t.delay, 20) / 20, float(t.freight)] for t in self.queue[:6]]
        rows += [[0.0, 0.0, 0.0]] * (6 - len(rows))
        return torch.tensor(rows).flatten()


class Handover:
    """Swaps the boards of both approaches; the fuller side speaks first."""

    def __init__(self, rank, forecast):
        self.rank = rank
        self.peer = 3 - rank
        self.forecast = forecast

    def swap(self, hour, board):
        theirs = torch.empty_like(board)
        mine, other = self.forecast[hour][self.rank], self.forecast[hour][self.peer]
        if mine > other:
            dist.send(board, dst=self.peer)
            dist.recv(theirs, src=self.peer)
        else:
            dist.recv(theirs, src=self.peer)
            dist.send(board, dst=self.peer)
        return theirs


def planned_counts(hours):
    """Trains planned per hour and approach, from the working timetable."""
    plan = []
    for hour in range(hours):
        east = 14 - hour // 12
        west = 7 - hour // 60
        plan.append({1: max(east, 3), 2: max(west, 3)})
    return plan


def controller(rank, world, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=world)
    torch.manual_seed(3)
    policy = torch.nn.Sequential(torch.nn.Linear(36, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    optim = torch.optim.SGD(policy.parameters(), lr=0.02)
    side = Approach(rank, args.seed + rank) if rank else None
    handover = Handover(rank, planned_counts(args.hours)) if rank else None
    for hour in range(args.hours):
        if side is None:
            view = torch.rand(36)  # the dispatcher trains on sketched situations
        else:
            side.tick(hour)
            board = side.state()
            view = torch.cat([board, handover.swap(hour, board)])
        time.sleep(0.03)  # simulator tick
        logits = policy(view)
        loss = torch.nn.functional.cross_entropy(logits[None], torch.tensor([int(view[:18].sum() > view[18:].sum())]))
        optim.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optim.step()
        if rank == 0 and hour % 12 == 0:
            print(f"hour {hour:3d} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=240)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--port", type=int, default=random.randint(20000, 40000))
    mp.spawn(controller, args=(3, parser.parse_args()), nprocs=3)
