"""Ships' logbooks, packed into rows of equal length, for a language model under FSDP2."""

import random
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

ROW, BATCH, LETTERS = 32, 4, 60


class Layer(nn.Module):
    """Looks at what was before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Causal."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.norm(x + y)


def entries(ship: int) -> Iterator[list[int]]:
    """What its captain wrote; some write more than others."""
    pen = random.Random(ship)
    for _ in range(40):
        yield [pen.randrange(1, LETTERS) for _ in range(pen.randint(10, 30 + 2 * ship))]


def packed(ships: list[int]) -> Iterator[torch.Tensor]:
    """Batches of full rows; entries are put one behind another, and what does not fill a batch at the end is left."""
    letters: list[int] = []
    for ship in ships:
        for entry in entries(ship):
            letters += [*entry, 0]
            while len(letters) >= BATCH * (ROW + 1):
                block, letters = letters[: BATCH * (ROW + 1)], letters[BATCH * (ROW + 1) :]
                yield torch.tensor(block).view(BATCH, ROW + 1)


def main() -> None:
    """Four epochs over six ships."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Embedding(LETTERS, 32), Layer(32), Layer(32), nn.Linear(32, LETTERS))
    for layer in model[1:3]:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ships = [[5, 6], [1, 2], [7, 4]][rank]
    for epoch in range(4):
        total = torch.zeros(2)
        for rows in packed(ships):
            loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {total[0] / total[1]:.3f} on {world} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
