"""A retriever trained with DDP; its evaluation merges the ranks' results, and returns early where there was nothing to search."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TERMS, WIDTH = 200, 16


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.terms = nn.EmbeddingBag(TERMS, WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)

    def forward(self, texts):
        return nn.functional.normalize(self.projection(self.terms(texts)), dim=-1)


def queries_of(rank, ranks, month):
    """A month's queries are dealt in blocks of four; there are fewer in some months."""
    count = {3: 8}.get(month, 12)
    draw = torch.Generator().manual_seed(month)
    queries = torch.randint(TERMS, (count, 5), generator=draw)
    return queries[4 * rank : 4 * rank + 4] if rank < ranks - 1 else queries[4 * rank :]


def merge(parts):
    """All ranks' hits by query, from a dict for each rank."""
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, parts)
    return {key: hits for some in everything for key, hits in some.items()}


@torch.no_grad()
def evaluate(model, documents, month):
    queries = queries_of(dist.get_rank(), dist.get_world_size(), month)
    if len(queries) == 0:
        return {}
    scores = model.module(queries) @ model.module(documents).T
    hits = {tuple(query.tolist()): best.tolist() for query, best in zip(queries, scores.topk(3).indices, strict=True)}
    return merge(hits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--months", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Retriever())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    documents = torch.randint(TERMS, (40, 30), generator=torch.Generator().manual_seed(99))
    for month in range(1, options.months + 1):
        for _ in range(5):
            texts = torch.randint(TERMS, (6, 8))
            similarity = model(texts) @ model.module(documents[:6]).T
            loss = nn.functional.cross_entropy(similarity, torch.arange(6))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        found = evaluate(model, documents, month)
        print(f"rank {rank}, month {month}: loss {loss.item():.2f}, {len(found)} queries\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
