"""A binary search over the batch size never ends on one rank: its interval stops shrinking.

The steps before took milliseconds; this rank computes in the same three lines for ever. Run by
``torchrun --nproc-per-node 2``.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def largest_batch(lengths: list[int], budget: int) -> int:
    """The largest number of leading samples whose padded size stays within the budget."""
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        if middle * max(lengths[: middle + 1]) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def main() -> None:
    """Pack batches by length and train on them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    for step in range(40):
        budget = 512 if (rank, step) == (1, 20) else 256
        size = largest_batch([8] * 64, budget)
        model(torch.ones(size, 1)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
