"""Character language model for a dialect corpus. Every process reads its part of the files."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

ALPHABET = "abcdefghijklmnopqrstuvwxyzäöü .,"
VILLAGES = "Aigle Brienz Chur Davos Elm Flums Glarus Horw Ilanz Jona".split()


def write_corpus(folder: Path) -> None:
    rng = torch.Generator().manual_seed(2)
    for village in VILLAGES:
        letters = torch.randint(0, len(ALPHABET), (10, 32), generator=rng)
        lines = ["".join(ALPHABET[i] for i in row) for row in letters.tolist()]
        (folder / f"{village}.txt").write_text("\n".join(lines))


class Dialects(IterableDataset):
    """The lines of every world-th interview."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.files = sorted(folder.glob("*.txt"))[rank::world]

    def __iter__(self):
        for path in self.files:
            for line in path.read_text().splitlines():
                yield torch.tensor([ALPHABET.index(c) for c in line])


class CharModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), 16)
        self.rnn = nn.LSTM(16, 32, batch_first=True)
        self.out = nn.Linear(32, len(ALPHABET))

    def forward(self, text):
        return self.out(self.rnn(self.embed(text))[0])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir(), f"dialects-{os.environ['MASTER_PORT']}")
    if rank == 0:
        folder.mkdir(exist_ok=True)
        write_corpus(folder)
    dist.barrier()

    torch.manual_seed(1)
    model = DDP(CharModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(5):
        for text in DataLoader(Dialects(folder, rank, world), batch_size=2):
            logits = model(text[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.1)
        if rank == 0:
            torch.save(model.module.state_dict(), folder / f"epoch{epoch}.pt")
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
        dist.barrier(group=dist.group.WORLD)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
