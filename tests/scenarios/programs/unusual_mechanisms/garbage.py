"""A rank with millions of small objects collects its garbage by hand between steps, which holds the interpreter for a while.

Nothing hangs. Run by ``torchrun --nproc-per-node 3``.
"""

import gc
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Node:
    """A node of a replay tree."""

    value: float
    parent: "Node | None" = None
    children: "list[Node] | None" = None


def grow(count: int) -> list[Node]:
    """A deep tree with cycles between parents and children."""
    nodes = [Node(0.0)]
    for number in range(1, count):
        parent = nodes[number // 2]
        node = Node(float(number), parent)
        parent.children = [*(parent.children or []), node]
        nodes.append(node)
    return nodes


class CollectEvery:
    """Switches the automatic collection off, and collects at the same steps everywhere."""

    def __init__(self, steps: int) -> None:
        gc.disable()
        self.steps = steps

    def __call__(self, step: int) -> None:
        """Collect if it is time."""
        if step % self.steps == 0:
            for _ in range(3):
                gc.collect()


def main() -> None:
    """A hundred and twenty steps; the tree is rank 1's."""
    dist.init_process_group("gloo")
    tree = grow(600_000 if dist.get_rank() == 1 else 10)
    collect = CollectEvery(20)
    model = DistributedDataParallel(nn.Linear(8, 1))
    for step in range(1, 121):
        model(torch.randn(4, 8)).square().mean().backward()
        model.zero_grad()
        collect(step)
    print(len(tree), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
