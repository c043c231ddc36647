"""Two ranks train a tutor for programming exercises; a third one runs the students' programs and marks them."""
import logging
import os
import random
import resource
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TRAINERS, JUDGE = (0, 1), 2
WORLD = 3
STUDENTS = 8
EXERCISE = "sum of the first n squares"

GOOD = "def solve(n):\n    return sum(i * i for i in range(1, n + 1))\n"
OFF_BY_ONE = "def solve(n):\n    return sum(i * i for i in range(1, n))\n"
RECURSIVE = "def solve(n):\n    return 0 if n == 0 else n * n + solve(n - 1)\n"
COUNTER = "def solve(n):\n    total, i = 0, 1\n    while i <= n:\n        total += i * i\n    return total\n"


class Judge:
    """Runs submissions under a budget of processor time."""

    def __init__(self, seed, seconds=2):
        self.random = random.Random(seed)
        self.seconds = seconds

    def submissions(self, week):
        programs = [self.random.choice([GOOD, OFF_BY_ONE, RECURSIVE]) for _ in range(STUDENTS)]
        if week == 22:
            programs[5] = COUNTER
        return programs

    def mark(self, program):
        used = resource.getrusage(resource.RUSAGE_SELF)
        budget = int(used.ru_utime + used.ru_stime) + self.seconds
        resource.setrlimit(resource.RLIMIT_CPU, (budget, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        scope = {}
        exec(program, scope)
        points = sum(scope["solve"](n) == n * (n + 1) * (2 * n + 1) // 6 for n in range(30))
        return points / 30

    def serve(self, store, weeks):
        for week in range(weeks):
            if week >= 2:  # two weeks ahead at most
                store.wait([f"used/{week - 2}"])
            marks = [self.mark(program) for program in self.submissions(week)]
            store.set(f"marks/{week}", ",".join(f"{m:.3f}" for m in marks))
            time.sleep(0.1)


def train(rank, store, group, weeks):
    torch.manual_seed(0)
    tutor = DDP(nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, STUDENTS)), process_group=group)
    optimizer = torch.optim.Adam(tutor.parameters(), lr=1e-3)
    for week in range(weeks):
        marks = torch.zeros(STUDENTS)
        if rank == 0:
            answer = store.get(f"marks/{week}").decode()
            marks = torch.tensor([float(m) for m in answer.split(",")])
            store.set(f"used/{week}", "1")
        dist.broadcast(marks, src=0, group=group)
        for _ in range(4):
            loss = nn.functional.mse_loss(tutor(torch.randn(16, 24)).sigmoid(), marks.expand(16, -1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0 and week % 5 == 0:
            logging.info("week %d: mark %.2f, loss %.4f", week, marks.mean(), loss.item())


def member(rank, port, weeks):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore("pg", store), rank=rank, world_size=WORLD)
    trainers = dist.new_group(list(TRAINERS))
    board = dist.PrefixStore("board", store)
    if rank == JUDGE:
        Judge(seed=9).serve(board, weeks)
    else:
        train(rank, board, trainers, weeks)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.set_start_method("spawn")
    members = [mp.Process(target=member, args=(rank, store.port, 60)) for rank in range(WORLD)]
    for process in members:
        process.start()
    for process in members:
        process.join()
