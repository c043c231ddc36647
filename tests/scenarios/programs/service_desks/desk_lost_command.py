"""A small inference engine: one scheduler, two tensor-parallel workers, each with a queue of commands."""

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch
import torch.distributed as dist

VOCAB, HIDDEN, WORKERS = 64, 32, 2


@dataclass
class Request:
    prompt: list[int]
    max_tokens: int = 6
    processor: Callable | None = None
    output: list[int] = field(default_factory=list)


@dataclass
class Command:
    name: str
    tokens: list[int] | None = None
    processor: Callable | None = None


def no_repeats(logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    logits[..., tokens[-1]] = -torch.inf
    return logits


def worker(rank: int, commands, results) -> None:
    """Has a slice of the model. The last one has the sampler too."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
    generator = torch.Generator().manual_seed(7)
    embed = torch.randn(VOCAB, HIDDEN, generator=generator)
    up = torch.randn(HIDDEN, 2 * HIDDEN, generator=generator).chunk(WORKERS, dim=1)[rank]
    down = torch.randn(2 * HIDDEN, VOCAB, generator=generator).chunk(WORKERS, dim=0)[rank]
    while True:
        command = commands.get()
        if command.name == "stop":
            break
        hidden = embed[command.tokens].mean(0)
        logits = torch.relu(hidden @ up) @ down
        dist.all_reduce(logits)
        if rank == WORKERS - 1:
            if command.processor is not None:
                logits = command.processor(logits, command.tokens)
            results.put(int(logits.argmax()))
    dist.destroy_process_group()


class Engine:
    def __init__(self) -> None:
        ctx = multiprocessing.get_context("fork")
        self.waiting: SimpleQueue[Request | None] = SimpleQueue()
        self.results = ctx.Queue()
        self.commands = [ctx.Queue() for _ in range(WORKERS)]
        self.workers = [ctx.Process(target=worker, args=(r, c, self.results)) for r, c in enumerate(self.commands)]
        for process in self.workers:
            process.start()

    def step(self, request: Request) -> None:
        tokens = request.prompt + request.output
        for rank, commands in enumerate(self.commands):
            samples = rank == WORKERS - 1
            commands.put(Command("forward", tokens, request.processor if samples else None))
        request.output.append(self.results.get())

    def serve(self) -> None:
        while (request := self.waiting.get()) is not None:
            for _ in range(request.max_tokens):
                self.step(request)
            print("prompt", request.prompt, "output", request.output, flush=True)
        for commands in self.commands:
            commands.put(Command("stop"))
        for process in self.workers:
            process.join()


def traffic(queue: SimpleQueue) -> None:
    """What the users send."""
    for number in range(40):
        request = Request([number % VOCAB, (3 * number) % VOCAB])
        if number % 4 == 1:
            request.processor = no_repeats
        if number % 15 == 14:
            banned = {number % 5, number % 7}
            request.processor = lambda logits, tokens: logits.index_fill(0, torch.tensor(sorted(banned)), -torch.inf)
        queue.put(request)
        time.sleep(0.15)
    queue.put(None)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    engine = Engine()
    threading.Thread(target=traffic, args=(engine.waiting,), daemon=True).start()
    engine.serve()
