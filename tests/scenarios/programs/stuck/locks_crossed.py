"""Two threads of one rank take two locks in opposite order: the trainer cache then model, the saver model then cache.

The program starts its own ranks.
"""

import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Trainer:
    """Trains in the main thread and saves in another."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.weight = torch.zeros(64)
        self.cache: list[float] = []
        self.model_lock = threading.Lock()
        self.cache_lock = threading.Lock()

    def save(self) -> None:
        """Write the weights and the cache, as they belong together."""
        with self.model_lock:
            snapshot = self.weight.clone()
            time.sleep(0.3)
            with self.cache_lock:
                torch.save({"weight": snapshot, "cache": list(self.cache)}, os.devnull)

    def update(self, gradient: torch.Tensor) -> None:
        """One step of the weights, noted in the cache."""
        with self.cache_lock:
            self.cache.append(gradient.norm().item())
            with self.model_lock:
                self.weight -= 0.1 * gradient

    def train(self) -> None:
        """Fifty steps; every rank saves at its own time so that the disk is not flooded."""
        for step in range(50):
            gradient = torch.randn(64)
            dist.all_reduce(gradient)
            if step == 20 + self.rank and self.rank == 1:
                threading.Thread(target=self.save, name="saver").start()
                time.sleep(0.1)
            self.update(gradient)


def work(rank: int, port: int) -> None:
    """One rank of three."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    Trainer(rank).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.start_processes(work, args=(free,), nprocs=3, start_method="fork")
