"""A small language model of three newspapers, one for each rank; articles are packed into blocks of one length."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BLOCK = 32
USUAL_LENGTH = (120, 118, 81)


def articles(paper: int) -> Iterator[torch.Tensor]:
    """Thirty articles as numbers of words."""
    generator = torch.Generator().manual_seed(paper)
    for _ in range(30):
        length = USUAL_LENGTH[paper] + int(torch.randint(-9, 10, (), generator=generator))
        yield torch.randint(0, 200, (length,), generator=generator)


def blocks(paper: int) -> list[torch.Tensor]:
    """Articles one after another, cut into pieces."""
    words = torch.cat(list(articles(paper)))
    return list(words[: len(words) // BLOCK * BLOCK].view(-1, BLOCK))


class Reader(nn.Module):
    """A recurrent layer between an embedding and its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.memory = nn.Embedding(200, 16), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 200)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits of the word that comes next."""
        return self.head(self.memory(self.words(words))[0])


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Reader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        total = torch.zeros(1)
        for block in blocks(rank):
            logits = model(block[None, :-1])
            loss = nn.functional.cross_entropy(logits[0], block[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        totals = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(totals, total)
        if rank == 0:
            print(f"epoch {epoch}: {[round(float(t), 2) for t in totals]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
