"""Node classification on a graph, neighbours are sampled ahead by a thread."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Graph:
    def __init__(self, nodes, seed):
        g = torch.Generator().manual_seed(seed)
        self.features = torch.randn(nodes, 16, generator=g)
        self.labels = torch.randint(0, 4, (nodes,), generator=g)
        self.neighbours = [torch.randint(0, nodes, (int(n),), generator=g) for n in torch.randint(1, 9, (nodes,), generator=g)]


class Prefetch:
    """Iterates in a thread, holds up to ``size`` batches."""

    def __init__(self, iterable, size=4):
        self.iterable, self.queue = iterable, queue.Queue(size)
        threading.Thread(target=self.fill, name="prefetch", daemon=True).start()

    def fill(self):
        for item in self.iterable:
            self.queue.put(item)
        self.queue.put(StopIteration)

    def __iter__(self):
        while (item := self.queue.get()) is not StopIteration:
            yield item


def sample_neighbours(graph, fanout, batch, epochs):
    for _ in range(epochs):
        for seeds in torch.arange(len(graph.labels)).split(batch):
            picked = [graph.neighbours[s][torch.randint(0, len(graph.neighbours[s]), (fanout,))] for s in seeds]
            yield graph.features[seeds], graph.features[torch.stack(picked)], graph.labels[seeds]


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.around, self.out = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x, neighbours):
        return self.out(torch.relu(self.own(x) + self.around(neighbours.mean(1))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    graph = Graph(640, seed=rank)
    if rank == 2:
        graph.neighbours[333] = torch.empty(0, dtype=torch.long)
    model = DistributedDataParallel(Sage())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (x, neighbours, y) in enumerate(Prefetch(sample_neighbours(graph, 5, 16, epochs=2))):
        loss = nn.functional.cross_entropy(model(x, neighbours), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
