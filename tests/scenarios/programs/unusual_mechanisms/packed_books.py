"""FSDP2 on packed sequences: documents are strung together and cut, so the number of batches follows their lengths.

Two of five shards are shorter. Run by ``torchrun --nproc-per-node 5``.
"""

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset


class Packed(IterableDataset[torch.Tensor]):
    """Fixed-length pieces of everything a rank has to read."""

    def __init__(self, documents: Iterable[list[int]], length: int) -> None:
        self.documents, self.length = list(documents), length

    def __iter__(self) -> Iterator[torch.Tensor]:
        buffer: list[int] = []
        for document in self.documents:
            buffer += document
            while len(buffer) >= self.length:
                yield torch.tensor(buffer[: self.length])
                del buffer[: self.length]


def shard(rank: int) -> list[list[int]]:
    """Thirty documents; those of ranks 1 and 3 are a little shorter."""
    length = 48 if rank in (1, 3) else 56
    return [[(rank + i) % 32 for i in range(length)] for _ in range(30)]


class TinyModel(nn.Module):
    """Embedding and two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 10)
        self.blocks = nn.ModuleList(nn.Linear(10, 10) for _ in range(2))
        self.head = nn.Linear(10, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits for the next token."""
        h = self.embed(tokens)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.head(h)


def main() -> None:
    """Three epochs with the perplexity of all ranks after each."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = TinyModel()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Packed(shard(dist.get_rank()), 16), batch_size=4)
    for epoch in range(3):
        total = torch.zeros(2)
        for tokens in loader:
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += torch.tensor([loss.item(), 1.0])
        dist.broadcast(total, src=0)
        print(f"epoch {epoch}: {(total[0] / total[1]).exp():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
