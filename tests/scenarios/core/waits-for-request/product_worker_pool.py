"""Fine-tuning service: a driver has a pool of workers, which train together, and tells them what to do."""

import os
import socket
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 3


class Trainer:
    """What a worker can do."""

    def __init__(self, rank):
        self.generator = torch.Generator().manual_seed(rank)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2))

    def train(self, steps):
        for _ in range(steps):
            x = torch.randn(16, 12, generator=self.generator)
            loss = nn.functional.cross_entropy(self.model(x), (x.sum(-1) > 0).long())
            gradients = torch.autograd.grad(loss, list(self.model.parameters()))
            for parameter, gradient in zip(self.model.parameters(), gradients):
                dist.all_reduce(gradient)
                parameter.data -= 0.05 * gradient / WORLD
            time.sleep(0.02)
        return loss.item()

    def evaluate(self):
        x = torch.randn(128, 12, generator=self.generator)
        with torch.no_grad():
            correct = (self.model(x).argmax(-1) == (x.sum(-1) > 0)).float().mean()
        dist.all_reduce(correct)
        return correct.item() / WORLD


def serve(rank, port, inbox, outbox):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    trainer = Trainer(rank)
    while (task := inbox.get()) is not None:
        method, arguments = task
        outbox.put(getattr(trainer, method)(*arguments))
    dist.destroy_process_group()


@dataclass
class Worker:
    process: mp.Process
    inbox: object
    outbox: object
    busy_for: float = 0.0

    def submit(self, method, *arguments):
        self.inbox.put((method, arguments))

    def result(self):
        start = time.monotonic()
        answer = self.outbox.get()
        self.busy_for = time.monotonic() - start
        return answer


class Pool:
    def __init__(self):
        context = mp.get_context("spawn")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.workers = []
        for rank in range(WORLD):
            inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
            process = context.Process(target=serve, args=(rank, port, inbox, outbox), name=f"worker-{rank}")
            process.start()
            self.workers.append(Worker(process, inbox, outbox))

    def call(self, method, *arguments, workers=None):
        workers = workers or self.workers
        for worker in workers:
            worker.submit(method, *arguments)
        return [worker.result() for worker in workers]

    def close(self):
        for worker in self.workers:
            worker.inbox.put(None)
        for worker in self.workers:
            worker.process.join()


def main():
    pool = Pool()
    for round_number in range(20):
        losses = pool.call("train", 25)
        print(f"round {round_number}: {sum(losses) / len(losses):.4f}", flush=True)
        if round_number % 3 == 2:
            evaluators = pool.workers[: max(1, WORLD - 1)]
            accuracies = pool.call("evaluate", workers=evaluators)
            print(f"round {round_number}: accuracy {accuracies[0]:.3f}", flush=True)
    pool.close()


if __name__ == "__main__":
    main()
