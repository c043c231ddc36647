"""A small language model of old letters, packed into sequences of one length."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CONTEXT = 32
VOCABULARY = 80


class Letters(nn.Module):
    """Embedding, GRU, output."""

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of each next token."""
        return self.out(self.rnn(self.embed(tokens))[0])


def letters_for(rank: int, world: int) -> list[list[int]]:
    """Every so many-th letter of the collection."""
    source = random.Random(11)
    collection = [[source.randrange(VOCABULARY) for _ in range(source.randint(20, 200))] for _ in range(60)]
    return collection[rank::world]


def pack(letters: list[list[int]]) -> torch.Tensor:
    """All letters in a row, cut into equal pieces; the rest is dropped."""
    stream = torch.tensor([token for letter in letters for token in [*letter, 0]])
    pieces = len(stream) // (CONTEXT + 1)
    return stream[: pieces * (CONTEXT + 1)].view(pieces, CONTEXT + 1)


def main() -> None:
    """Two passes."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Letters())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    sequences = pack(letters_for(rank, world))
    print(f"rank {rank}: {len(sequences)} sequences", flush=True)
    for epoch in range(2):
        for batch in sequences.split(4):
            scores = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "/dev/null")
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
