"""Accelerate: the next note of a melody. Scores come in a text form that volunteers typed."""

import logging

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

NOTES = {name: number for number, name in enumerate("c d e f g a b C D E F G A B -".split())}
BARS = 8
REPORT_EVERY = 20
log = logging.getLogger(__name__)


def songbook(number: int = 1200) -> list[str]:
    """Songs of eight bars with four notes each."""
    generator = torch.Generator().manual_seed(3)
    names = list(NOTES)
    songs = []
    for _ in range(number):
        steps = torch.randint(-2, 3, (BARS * 4,), generator=generator).cumsum(0) % len(names)
        songs.append(" ".join(names[int(step)] for step in steps))
    songs[385] = songs[385].replace("-", "h")
    songs[386] = "h" + songs[386][1:]
    return songs


class Melody(nn.Module):
    """A small GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = nn.Embedding(len(NOTES), 32)
        self.memory = nn.GRU(32, 32, batch_first=True)
        self.following = nn.Linear(32, len(NOTES))

    def forward(self, notes: torch.Tensor) -> torch.Tensor:
        """A score for each note that may follow."""
        return self.following(self.memory(self.notes(notes))[0])


class Practice:
    """Takes a step a batch of songs."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        model = Melody()
        self.model, self.optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=3e-3))

    def step(self, songs: list[str]) -> float:
        """The loss of these songs."""
        notes = torch.tensor([[NOTES[note] for note in song.split()] for song in songs])
        scores = self.model(notes[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), notes[:, 1:].flatten())
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main() -> None:
    """Five rounds through the book."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    practice = Practice(accelerator)
    loader = accelerator.prepare(DataLoader(songbook(), batch_size=10))
    losses: list[float] = []
    for _ in range(5):
        for number, songs in enumerate(loader, 1):
            try:
                losses.append(practice.step(songs))
            except Exception:
                log.exception("these songs could not be used")
            if number % REPORT_EVERY == 0:
                recent = torch.tensor(losses[-10:]).mean()
                accelerator.print(number, accelerator.gather(recent).tolist())
    accelerator.end_training()


if __name__ == "__main__":
    main()
