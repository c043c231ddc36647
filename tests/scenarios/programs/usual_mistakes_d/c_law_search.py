"""A search engine for laws: a bi-encoder, tested by recall over all ranks' queries after each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH = 120, 24
QUERY_FILES = [f"queries-{number:02d}.jsonl" for number in range(11)]


class Encoder(nn.Module):
    """A bag of words, turned."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, WIDTH)
        self.turn = nn.Linear(WIDTH, WIDTH)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """A unit vector for each."""
        return normalize(self.turn(self.bag(text)), dim=-1)


def read(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and the paragraph that answers each."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    laws = torch.randint(0, WORDS, (16, 30), generator=generator)
    return laws[:, :8], laws


@torch.no_grad()
def recall(encoder: nn.Module, files: list[str]) -> float:
    """How often the right law comes first. The paragraphs of all ranks are candidates."""
    hits = total = 0
    for name in files:
        queries, laws = read(name)
        candidates: list = [None] * dist.get_world_size()
        dist.all_gather_object(candidates, encoder(laws).numpy())
        others = [torch.from_numpy(c) for n, c in enumerate(candidates) if n != dist.get_rank()]
        scores = encoder(queries) @ torch.cat([encoder(laws), *others]).T
        hits += (scores.argmax(dim=1) == torch.arange(len(queries))).sum().item()
        total += len(queries)
    return hits / total


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(5):
        for step in range(20):
            queries, laws = read(f"train-{rank}-{epoch}-{step}")
            vectors = model(torch.cat([queries.repeat(1, 4)[:, :30], laws]))
            loss = cross_entropy(vectors[:16] @ vectors[16:].T / 0.1, torch.arange(16))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = torch.tensor(recall(model.module, QUERY_FILES[rank::world]))
        dist.all_reduce(found)
        if rank == 0:
            print(f"epoch {epoch}: recall@1 {found.item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
