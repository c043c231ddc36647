"""Chess value network; between two training phases rank 0 lets the net play a short match against an engine over UCI."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ENGINE = r"""
import random, sys, time
for line in sys.stdin:
    words = line.split()
    if words[:1] == ["uci"]:
        print("uciok", flush=True)
    elif words[:1] == ["go"]:
        end = time.time() + int(words[2]) / 1000
        best, nodes = 0, 0
        while time.time() < end:
            value = sum(random.random() for _ in range(400))
            nodes += 400
            best = max(best, value)
        print("bestmove", int(best * 1000) % 64, flush=True)
    elif words[:1] == ["quit"]:
        break
"""


class Engine:
    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.say("uci")
        return self

    def say(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def __exit__(self, *exc):
        self.process.stdin.write("quit\n")
        self.process.stdin.close()
        self.process.wait()


def play_match(net, moves, movetime):
    board, score = torch.zeros(64), 0.0
    with Engine() as engine, torch.no_grad():
        for _ in range(moves):
            square = int(engine.say(f"go movetime {movetime}")[1])
            board[square] -= 1
            board[int(net(board[None]).argmax())] += 1
            score += board.sum().item()
    return score / moves


def phase(model, optimizer, steps):
    for _ in range(steps):
        boards = torch.randint(-1, 2, (16, 64)).float()
        time.sleep(0.03)
        loss = nn.functional.cross_entropy(model(boards), boards.argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def worker(rank, world, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    phase(model, optimizer, 80)
    result = [play_match(model.module, moves=7, movetime=2000)] if rank == 0 else [None]
    dist.broadcast_object_list(result, src=0)
    phase(model, optimizer, 110)
    if rank == 0:
        print("match score", round(result[0], 3))
    dist.destroy_process_group()


if __name__ == "__main__":
    import os
    import tempfile
    mp.spawn(worker, args=(3, os.path.join(tempfile.mkdtemp(), "store")), nprocs=3)
