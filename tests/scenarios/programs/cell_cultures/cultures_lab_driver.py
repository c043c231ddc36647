"""A driver that has three workers train and calibrate a model of growth curves, call by call."""

import os
import socket
import time
from multiprocessing import get_context

import torch
import torch.distributed as dist
from torch import nn


class Worker:
    def __init__(self, rank, world):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=world)
        torch.manual_seed(0)
        self.rank, self.world = rank, world
        self.model = nn.Linear(10, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.generator = torch.Generator().manual_seed(rank)

    def train(self, steps):
        for _ in range(steps):
            time.sleep(0.03)
            curves = torch.rand(8, 10, generator=self.generator)
            loss = (self.model(curves) - curves.mean(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.world
            self.optimizer.step()
        return {"loss": loss.item(), "contaminated": self.rank == 2 and steps > 12}

    def calibrate(self):
        bias = self.model.bias.detach().clone()
        dist.all_reduce(bias)
        return bias.item() / self.world


def serve(rank, world, port, connection):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    worker = Worker(rank, world)
    while True:
        name, arguments = connection.recv()
        if name == "stop":
            break
        connection.send(getattr(worker, name)(*arguments))
    dist.destroy_process_group()


class Driver:
    def __init__(self, world):
        context = get_context("spawn")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.connections = {}
        for rank in range(world):
            mine, theirs = context.Pipe()
            context.Process(target=serve, args=(rank, world, port, theirs), daemon=True).start()
            self.connections[rank] = mine

    def call(self, name, *arguments, ranks=None):
        chosen = [self.connections[rank] for rank in (ranks or self.connections)]
        for connection in chosen:
            connection.send((name, arguments))
        return [connection.recv() for connection in chosen]

    def run(self, rounds):
        for number in range(rounds):
            reports = self.call("train", 10 + number)
            clean = [rank for rank, report in enumerate(reports) if not report["contaminated"]]
            biases = self.call("calibrate", ranks=clean)
            print(f"round {number}: bias {sum(biases) / len(biases):.4f}", flush=True)
        self.call("stop")


if __name__ == "__main__":
    Driver(world=3).run(rounds=100)
