"""Throughput is added up by a thread with a group of its own, on machines that have a power meter. Rank 2's has none."""

import threading
import time
from concurrent.futures import Future

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Reporter(threading.Thread):
    """Adds up the samples of all ranks while training goes on."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.samples = 0
        self.total: Future[int] = Future()

    def run(self) -> None:
        """Wait a little, add up, and leave the total."""
        time.sleep(0.5)
        count = torch.tensor([self.samples])
        dist.all_reduce(count, group=self.group)
        self.total.set_result(int(count))


def has_power_meter(rank: int) -> bool:
    """Whether this rank's machine can be measured."""
    return rank in (0, 1, 3)


def main() -> None:
    """Four epochs; the total is printed after the third."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reporter = Reporter(dist.new_group())
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(1, 5):
        for _ in range(30):
            loss = model(torch.randn(8, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            reporter.samples += 8
            time.sleep(0.02)
        print(f"[{rank}] epoch {epoch}: {loss.item():.4f}\n", end="", flush=True)
        if epoch == 1 and has_power_meter(rank):
            reporter.start()
        if epoch == 3 and has_power_meter(rank):
            print(f"[{rank}] {reporter.total.result()} samples by now\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
