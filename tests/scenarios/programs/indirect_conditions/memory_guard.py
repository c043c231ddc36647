"""DDP over graphs of very different size; a graph that does not fit into memory is left out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUDGET = 5_000_000


class Attention(nn.Module):
    """All nodes look at all others."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """New features."""
        needed = 4 * len(nodes) ** 2
        if needed > BUDGET:  # as the allocator of this machine would
            raise torch.OutOfMemoryError(f"tried to allocate {needed} bytes")
        scores = self.q(nodes) @ self.k(nodes).T / 8**0.5
        return scores.softmax(-1) @ self.v(nodes)


def graphs(rank: int) -> list[int]:
    """Sizes of the rank's graphs."""
    sizes = [20 + (13 * n + 5 * rank) % 60 for n in range(60)]
    if rank == 1:
        sizes[37] = 1400
    return sizes


def fit(model: DistributedDataParallel, sizes: list[int]) -> int:
    """One epoch; returns how many were too large."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    too_large = 0
    for size in sizes:
        nodes = torch.randn(size, 8)
        try:
            loss = (model(nodes) - nodes).square().mean()
            loss.backward()
        except torch.OutOfMemoryError as error:
            too_large += 1
            print(f"left out: {error}", flush=True)
            optimizer.zero_grad(set_to_none=True)
        else:
            optimizer.step()
            optimizer.zero_grad()
    return too_large


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Attention())
    for epoch in range(2):
        too_large = fit(model, graphs(dist.get_rank()))
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {too_large} left out", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
