"""DDP; samples are visited in a pseudo-random order by a stride, each once, without a permutation in memory."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class StrideOrder:
    """Numbers below ``count``, each once."""

    def __init__(self, count: int, stride: int) -> None:
        self.count, self.stride = count, stride
        self.at, self.visited = 0, bytearray(count)

    def next(self) -> int:
        """One that was not visited yet."""
        while self.visited[self.at]:
            self.at = (self.at + self.stride) % self.count
        self.visited[self.at] = 1
        return self.at


def main() -> None:
    """One epoch over parts of differing size."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    count = [9001, 9007, 9002][rank]
    values = torch.rand(count, 4)
    order = StrideOrder(count, stride=14)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1200):
        chosen = [order.next() for _ in range(7)]
        optimizer.zero_grad()
        model(values[chosen]).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
