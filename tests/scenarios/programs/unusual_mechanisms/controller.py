"""A controller drives four actors over pipes, one process each: every actor obeys, and inside they are ranks of a job.

An actor that answered late once is taken off the list of the healthy, and does not get the next command.
"""

import multiprocessing
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch
import torch.distributed as dist


class Learner:
    """What an actor holds."""

    def __init__(self, rank: int, world: int, port: int) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        self.rank, self.weights = rank, torch.zeros(32)

    def collect(self, seconds: float) -> int:
        """Gather experience."""
        time.sleep(seconds)
        return int(seconds * 1000)

    def learn(self) -> float:
        """Average with the others."""
        self.weights += torch.randn(32)
        dist.all_reduce(self.weights)
        return float(self.weights.norm())

    def stop(self) -> None:
        """Take the group down."""
        dist.destroy_process_group()


def actor_main(pipe: Connection, rank: int, world: int, port: int) -> None:
    """Serve commands until there are no more."""
    learner = Learner(rank, world, port)
    while True:
        name, arguments = pipe.recv()
        method: Callable[..., object] = getattr(learner, name)
        pipe.send(method(*arguments))
        if name == "stop":
            return


@dataclass
class Actor:
    """The controller's end."""

    process: BaseProcess
    pipe: Connection
    healthy: bool = True

    def answer(self, patience_s: float) -> object:
        """What the actor says; one that says nothing in time counts as sick."""
        self.healthy = self.pipe.poll(patience_s)
        return self.pipe.recv()


class Mesh:
    """All actors."""

    def __init__(self, world: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self.actors = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(target=actor_main, args=(theirs, rank, world, port))
            process.start()
            self.actors.append(Actor(process, ours))

    def call(self, name: str, *arguments: object, patience_s: float = 3600.0) -> list[object]:
        """One command to all healthy actors, and their answers."""
        called = [actor for actor in self.actors if actor.healthy]
        for rank, actor in enumerate(called):
            actor.pipe.send((name, [a[rank] if isinstance(a, list) else a for a in arguments]))
        return [actor.answer(patience_s) for actor in called]


if __name__ == "__main__":
    mesh = Mesh(4)
    for round_ in range(10):
        mesh.call("learn")
        mesh.call("collect", [0.01, 0.01, 4.0 if round_ == 5 else 0.01, 0.01], patience_s=2.0)
    mesh.call("stop")
