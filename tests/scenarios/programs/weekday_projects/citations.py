"""Learns to classify papers of a citation graph; each rank trains on the clusters it was dealt."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Cluster(NamedTuple):
    adjacency: torch.Tensor
    features: torch.Tensor
    fields: torch.Tensor


def clusters(seed: int = 2, papers: int = 400) -> Iterator[Cluster]:
    """Cuts the graph greedily into clusters of 20 to 29 papers."""
    generator = torch.Generator().manual_seed(seed)
    left = papers
    while left > 0:
        size = min(left, 20 + int(torch.randint(10, (1,), generator=generator)))
        edges = (torch.rand(size, size, generator=generator) < 0.2).float() + torch.eye(size)
        yield Cluster(
            edges / edges.sum(1, keepdim=True),
            torch.randn(size, 6, generator=generator),
            torch.randint(3, (size,), generator=generator),
        )
        left -= size


class GraphNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 10), torch.nn.Linear(10, 3)

    def forward(self, cluster: Cluster) -> torch.Tensor:
        hidden = torch.relu(cluster.adjacency @ self.first(cluster.features))
        return cluster.adjacency @ self.second(hidden)


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.model = DistributedDataParallel(GraphNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.clusters = [c for number, c in enumerate(clusters()) if number % self.world == self.rank]

    def epoch(self) -> float:
        right = papers = 0
        for cluster in self.clusters:
            logits = self.model(cluster)
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, cluster.fields).backward()
            self.optimizer.step()
            right += int((logits.argmax(1) == cluster.fields).sum())
            papers += len(cluster.fields)
        counts: list[tuple[int, int]] = [(0, 0)] * self.world
        dist.all_gather_object(counts, (right, papers))
        return sum(r for r, _ in counts) / sum(p for _, p in counts)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    for number in range(10):
        accuracy = trainer.epoch()
        if trainer.rank == 0:
            print(f"{number}: {accuracy:.3f}", flush=True)
    dist.destroy_process_group()
