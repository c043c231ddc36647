"""Recommender with a table too big for the ranks: a store lends them rows, and recalls the oldest when a rank has many."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client, Listener, wait

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD, WIDTH = 3, 8
MOST, MANY, RECALLED = 300, 240, 40


class RowStore:
    def __init__(self, address):
        self.rows, self.lent = {}, {rank: {} for rank in range(WORLD)}
        self.control, self.requests = {}, {}
        listener = Listener(address, backlog=2 * WORLD)
        print("ready", flush=True)
        while len(self.control) + len(self.requests) < 2 * WORLD:
            connection = listener.accept()
            kind, rank = connection.recv()
            getattr(self, kind)[rank] = connection

    def serve(self):
        while True:
            ready = wait([*self.control.values(), *self.requests.values()])
            for rank in range(WORLD):
                if self.control[rank] in ready:
                    self.take_back(rank)
                if self.requests[rank] in ready:
                    rows = self.lend(rank, self.requests[rank].recv())
                    if len(self.lent[rank]) > MANY:
                        self.recall(rank)
                    self.requests[rank].send(rows)

    def recall(self, rank):
        self.control[rank].send(list(self.lent[rank])[:RECALLED])

    def take_back(self, rank):
        returned = self.control[rank].recv()
        self.rows.update(returned)
        for row in returned:
            del self.lent[rank][row]

    def lend(self, rank, wanted):
        while len(self.lent[rank]) + len(wanted) > MOST:
            self.recall(rank)
            self.take_back(rank)
        self.lent[rank].update(dict.fromkeys(wanted))
        return {row: self.rows.get(row, np.zeros(WIDTH, np.float32)) for row in wanted}


class LeasedTable:
    def __init__(self, address, rank):
        self.local = {}
        self.control, self.requests = Client(address), Client(address)
        for kind in ("control", "requests"):
            getattr(self, kind).send((kind, rank))

    def fetch(self, ids):
        self.requests.send([row for row in ids if row not in self.local])
        self.local.update(self.requests.recv())
        return torch.from_numpy(np.stack([self.local[row] for row in ids])).requires_grad_()

    def update(self, ids, rows, rate=0.1):
        self.local.update(zip(ids, (rows.detach() - rate * rows.grad).numpy()))
        while self.control.poll():
            recalled = self.control.recv()
            self.control.send({row: self.local.pop(row) for row in recalled if row in self.local})


def run_rank(rank, address, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    table = LeasedTable(address, rank)
    torch.manual_seed(0)
    model = DDP(nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = rank * 10**6
    for step in range(20000):
        users = 120 if rank == 1 and step == 75 else 8  # a sale in the second region
        ids = list(range(first, first + users))
        first += users - 2
        rows = table.fetch(ids)
        optimizer.zero_grad()
        loss = (model(rows).squeeze(1) - torch.tensor([float(i % 3) for i in ids])).square().mean()
        loss.backward()
        optimizer.step()
        table.update(ids, rows)
        time.sleep(0.02)


def main():
    address = os.path.join(tempfile.mkdtemp(), "rows")
    store = subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE, text=True)
    store.stdout.readline()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    mp.spawn(run_rank, (address, port), nprocs=WORLD)


if __name__ == "__main__":
    RowStore(sys.argv[1]).serve() if len(sys.argv) > 1 else main()
