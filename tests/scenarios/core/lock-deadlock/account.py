"""DDP: two accounts of what is spent, of steps and of samples, kept by training and by a thread that reports them."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Account:
    """A number and who may change it."""

    def __init__(self, name: str) -> None:
        self.name, self.value, self.lock = name, 0, threading.Lock()

    def move_to(self, other: "Account", amount: int) -> None:
        """From this one to the other."""
        with self.lock:
            self.value -= amount
            time.sleep(0.002)
            with other.lock:
                other.value += amount


def give_back(spent: Account, left: Account) -> None:
    """What was counted twice."""
    while True:
        spent.move_to(left, 1)
        time.sleep(0.001)


def main() -> None:
    """Many steps."""
    dist.init_process_group("gloo")
    left, spent = Account("left"), Account("spent")
    left.value = 1_000_000
    if dist.get_rank() == 2:
        threading.Thread(target=give_back, args=(spent, left), daemon=True).start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _step in range(5000):
        loss = model(torch.randn(8, 10)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        left.move_to(spent, 8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
