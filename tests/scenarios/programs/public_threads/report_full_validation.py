"""Ranking model: trained by all, validated in full by rank 0 on every candidate, as the metric is not additive."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class Ranker(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.queries = nn.Linear(20, width)
        self.items = nn.Linear(20, width)

    def forward(self, queries, items):
        return self.queries(queries) @ self.items(items).T


def discounted_gain(scores, relevant):
    order = scores.argsort(descending=True)
    gain = 0.0
    for position, item in enumerate(order.tolist()):
        if item in relevant:
            gain += 1.0 / torch.log2(torch.tensor(position + 2.0)).item()
    ideal = sum(1.0 / torch.log2(torch.tensor(i + 2.0)).item() for i in range(len(relevant)))
    return gain / ideal


class FullValidation:
    def __init__(self, queries, items):
        generator = torch.Generator().manual_seed(77)
        self.queries = torch.randn(queries, 20, generator=generator)
        self.items = torch.randn(items, 20, generator=generator)
        self.relevant = [set((self.items @ query).topk(200).indices.tolist()) for query in self.queries]

    @torch.no_grad()
    def run(self, model, seconds):
        """As many queries as there is time for."""
        started, gains = time.monotonic(), []
        while time.monotonic() - started < seconds:
            index = len(gains) % len(self.queries)
            scores = model(self.queries[index : index + 1], self.items)[0]
            gains.append(discounted_gain(scores, self.relevant[index]))
        return sum(gains) / len(gains), len(gains)


def train(model, optimizer, steps, generator):
    for _ in range(steps):
        queries = torch.randn(32, 20, generator=generator)
        loss = nn.functional.cross_entropy(model(queries, queries), torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Ranker())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    validation = FullValidation(queries=40, items=4000) if rank == 0 else None
    for epoch in range(2):
        loss = train(model, optimizer, 40, generator)
        verdict = [None]
        if rank == 0:
            verdict[0] = validation.run(model.module, seconds=10.0 if epoch == 1 else 1.0)
        dist.broadcast_object_list(verdict, src=0)
        if rank == 1:
            print(f"epoch {epoch} loss {loss:.3f} gain {verdict[0][0]:.3f} of {verdict[0][1]} queries", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
