"""Local training on three desks' data: a driver calls the workers over pipes, and has them average their weights now and then."""
import logging
import multiprocessing as mp
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
DESKS = ("foreign", "home", "sport")


class Worker:
    def __init__(self, rank, port):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(len(DESKS)), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank = rank
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Embedding(500, 48), nn.Flatten(), nn.Linear(48 * 16, 96), nn.ReLU(), nn.Linear(96, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.round = 0

    def train(self, batches):
        self.round += 1
        for i in range(batches):
            g = torch.Generator().manual_seed(self.round * 1000 + i * 10 + self.rank)
            ids = torch.randint(0, 500, (24, 16), generator=g)
            loss = nn.functional.cross_entropy(self.model(ids), ids.sum(1) % 8)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def average(self):
        for p in self.model.parameters():
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()
        return True


def serve(rank, port, calls):
    worker = Worker(rank, port)
    calls.send("ready")
    while True:
        name, arguments = calls.recv()
        if name == "stop":
            break
        calls.send(getattr(worker, name)(*arguments))


class Driver:
    """Calls workers. Who has not answered in time is late, and left in peace until its answer is there."""

    def __init__(self, patience=1.5):
        self.patience, self.late = patience, set()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        context = mp.get_context("spawn")
        self.calls = []
        for rank, desk in enumerate(DESKS):
            here, there = context.Pipe()
            context.Process(target=serve, args=(rank, port, there), name=desk, daemon=True).start()
            self.calls.append(here)
        for calls in self.calls:
            calls.recv()

    def awake(self):
        return [r for r in range(len(DESKS)) if r not in self.late]

    def call(self, name, arguments, patience):
        called = self.awake()
        for rank in called:
            self.calls[rank].send((name, arguments.get(rank, ())))
        answers, until = {}, time.monotonic() + (patience or 3600.0)
        for rank in called:
            if self.calls[rank].poll(max(0.0, until - time.monotonic())):
                answers[rank] = self.calls[rank].recv()
            else:
                self.late.add(rank)
        return answers

    def welcome_back(self):
        for rank in sorted(self.late):
            if self.calls[rank].poll():
                self.calls[rank].recv()
                self.late.discard(rank)


def main():
    driver = Driver()
    for number in range(1, 200):
        driver.welcome_back()
        # the home desk sends in its whole election supplement at once
        batches = {r: (3000 if (DESKS[r], number) == ("home", 24) else 12,) for r in range(len(DESKS))}
        losses = driver.call("train", batches, driver.patience)
        if number % 8 == 0:
            driver.call("average", {}, None)
            logging.info("round %d: %s", number, {DESKS[r]: round(v, 3) for r, v in losses.items()})
    for calls in driver.calls:
        calls.send(("stop", ()))


if __name__ == "__main__":
    main()
