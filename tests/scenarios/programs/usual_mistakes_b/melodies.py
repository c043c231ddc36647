"""FSDP2: melodies, note by note, each until its closing note; the first rank renders some as sound."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

NOTES, CLOSING, RATE = 48, 0, 22050


class Block(nn.Module):
    """One step in depth."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(self.inner(x).relu())


class Melody(nn.Module):
    """The next note from the mean of those so far and the last one."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.notes, self.head = nn.Embedding(NOTES, width), nn.Linear(width, NOTES)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))

    def forward(self, notes: torch.Tensor) -> torch.Tensor:
        x = self.notes(notes)
        x = x.mean(dim=1) + x[:, -1]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@torch.no_grad()
def compose(model: nn.Module, count: int, generator: torch.Generator) -> torch.Tensor:
    """Until every melody of every rank has come to its end, or has a hundred notes."""
    notes = torch.randint(1, NOTES, (count, 1), generator=generator)
    done = torch.zeros(count, dtype=torch.bool)
    while notes.shape[1] < 100:
        chances = model(notes).softmax(dim=-1)
        chosen = torch.multinomial(chances, 1, generator=generator).squeeze(1).masked_fill(done, CLOSING)
        notes = torch.cat([notes, chosen[:, None]], dim=1)
        done |= chosen == CLOSING
        open_ends = (~done).sum()
        dist.all_reduce(open_ends)
        if open_ends == 0:
            break
    return notes


def render(melody: torch.Tensor) -> float:
    """A quarter of a second each, and how loud it gets."""
    loudest = 0.0
    for note in melody[:24].tolist():
        pitch = 220.0 * 2.0 ** (note / 12)
        wave = [math.sin(2 * math.pi * pitch * sample / RATE) for sample in range(RATE // 4)]
        loudest = max(loudest, max(wave))
    return loudest


def main() -> None:
    """Four rounds of practice and performance."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Melody()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for season in range(4):
        for _ in range(15):
            song = torch.randint(0, NOTES, (8, 17), generator=generator)
            nn.functional.cross_entropy(model(song[:, :-1]), song[:, -1]).backward()
            optimizer.step()
            optimizer.zero_grad()
        melodies = compose(model, 3 + 2 * rank, generator)
        lengths = (melodies != CLOSING).sum(dim=1).tolist()
        if rank == 0:
            peaks = [render(melody) for melody in melodies for _ in range(5)]
            print(f"season {season}: {lengths}, loudest {max(peaks):.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
