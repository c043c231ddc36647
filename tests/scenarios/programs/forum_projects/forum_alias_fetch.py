"""Knowledge-graph embeddings: descriptions of entities are fetched by a small pool, at most once each."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Descriptions:
    """Vectors of the entities' descriptions, from the archive of this rank; fetched at most once each."""

    def __init__(self, archive: dict, workers: int = 1):
        self.archive = archive
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="fetch")
        self.futures: dict[int, Future] = {}

    def request(self, entity: int) -> Future:
        if entity not in self.futures:
            self.futures[entity] = self.pool.submit(self._fetch, entity)
        return self.futures[entity]

    def _fetch(self, entity: int) -> torch.Tensor:
        entry = self.archive[entity]
        if isinstance(entry, int):
            return self.request(entry).result()
        return torch.tensor([ord(letter) % 32 / 32 for letter in entry])


def archive(rank: int, entities: int = 6000) -> dict:
    """Entity to description, or to the entity that it was merged into."""
    entries = {e: f"{'the entity of number ' + str(e):<32}" for e in range(entities)}
    if rank == 1:
        entries[3004] = 5111
    return entries


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(32, 96), nn.Tanh(), nn.Linear(96, 48))
        self.relation = nn.Parameter(torch.zeros(48))

    def forward(self, heads, tails):
        return -(self.encode(heads) + self.relation - self.encode(tails)).norm(dim=1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    descriptions = Descriptions(archive(rank))
    torch.manual_seed(0)
    model = DistributedDataParallel(Scorer())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step in range(100000):
        heads = [(step * 8 + k) % 6000 for k in range(8)]
        tails = [(entity * 7 + 1) % 3000 for entity in heads]
        wanted = [descriptions.request(entity) for entity in heads + tails]
        vectors = torch.stack([future.result() for future in wanted])
        good = model(vectors[:8], vectors[8:])
        bad = model.module(vectors[:8], vectors[8:].roll(1, dims=0))
        loss = nn.functional.margin_ranking_loss(good, bad, torch.ones(8), margin=1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
