"""Two Ray actors in a Gloo group learn from lessons; the first of them may ask the driver for the next one, over a connection."""

from __future__ import annotations

import argparse
import os
import socket
from multiprocessing.connection import Client, Listener

import ray
import torch
import torch.distributed as dist

KEY = b"lessons"


@ray.remote(num_cpus=0)
class Learner:
    def __init__(self, rank: int, port: int, desk: tuple[str, int], ask_at: int) -> None:
        self.rank, self.port, self.ask_at = rank, port, ask_at
        self.desk = Client(desk, authkey=KEY) if rank == 0 else None
        self.weights = torch.ones(16)

    def join(self) -> None:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{self.port}", rank=self.rank, world_size=2)

    def learn(self, lesson: int) -> float:
        if self.desk is not None and lesson == self.ask_at:
            self.desk.send("which?")
            lesson = self.desk.recv()
        self.weights += lesson
        dist.all_reduce(self.weights)
        return float(self.weights[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ask-at", type=int, default=-1)
    options = parser.parse_args()
    # A worker has the environment in which the cluster was started; what else it is to have, the job says.
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "HANGWATCH_RUN_DIR") if name in os.environ}
    ray.init(num_cpus=1, object_store_memory=80_000_000, include_dashboard=False, runtime_env={"env_vars": kept})
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    listener = Listener(("127.0.0.1", 0), authkey=KEY)
    learners = [Learner.remote(rank, port, listener.address, options.ask_at) for rank in range(2)]
    desk = listener.accept()
    ray.get([learner.join.remote() for learner in learners])
    for lesson in range(8):
        values = ray.get([learner.learn.remote(lesson) for learner in learners])
        print(f"lesson {lesson}: {values[0]:.0f}", flush=True)
        if desk.poll():
            desk.send(desk.recv() and lesson + 1)
