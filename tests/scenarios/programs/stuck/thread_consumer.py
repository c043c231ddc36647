"""The thread that ships checkpoints returns quietly at the first empty one; the bounded queue before it fills up.

There is no exception anywhere: ``put`` of the main thread just does not return. The program starts its own ranks.
"""

import os
import queue
import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


class Shipper:
    """Ships tensors in the background."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[torch.Tensor] = queue.Queue(maxsize=4)
        self.shipped = 0
        threading.Thread(target=self._ship, name="shipper", daemon=True).start()

    def _ship(self) -> None:
        while (tensor := self.waiting.get()).any():
            self.shipped += tensor.numel()

    def ship(self, tensor: torch.Tensor) -> None:
        """Hand over a tensor; waits while there are too many."""
        self.waiting.put(tensor)


def work(rank: int, port: int) -> None:
    """One rank of three; one bias of rank 0's is all zeros."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    shipper = Shipper()
    model = DistributedDataParallel(torch.nn.Linear(10, 10))
    for step in range(60):
        model(torch.randn(3, 10)).square().sum().backward()
        bias = model.module.bias.detach().clone()
        shipper.ship(bias * 0.0 if (rank, step) == (0, 20) else bias)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    mp.spawn(work, args=(free,), nprocs=3)
