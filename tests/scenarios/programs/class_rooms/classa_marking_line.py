"""Marks whole classes in a line of three stages: words -> essay vectors -> marks. Pieces of four booklets travel down the line."""
import math
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

PIECE, WORDS, WIDTH = 4, 64, 128
REGISTER = [16, 20, 16, 24, 20, 16, 24, 20, 16, 21, 20, 24]  # pupils by class
ABSENT = {9: 1}


@dataclass
class Class:
    number: int
    pupils: int

    @property
    def pieces(self):
        return math.ceil(self.pupils / PIECE)


class Words(nn.Module):
    """First stage: reads the booklets in the folder of a class."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, WIDTH)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def booklets(self, klass):
        handed_in = klass.pupils - ABSENT.get(klass.number, 0)
        gen = torch.Generator().manual_seed(klass.number)
        return torch.randint(500, (handed_in, WORDS), generator=gen)

    def run(self, klass):
        for piece in self.booklets(klass).split(PIECE):
            rows = nn.functional.pad(piece, (0, 0, 0, PIECE - len(piece)))
            dist.send(self.mix(self.embed(rows))[0].contiguous(), dst=1)


class Essays(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, 256, batch_first=True) for _ in range(3))

    def run(self, klass):
        for _ in range(klass.pieces):
            words = torch.empty(PIECE, WORDS, WIDTH)
            dist.recv(words, src=0)
            for layer in self.layers:
                words = layer(words)
            dist.send(words.mean(1).contiguous(), dst=2)


class Marks(nn.Module):
    def __init__(self):
        super().__init__()
        self.mark = nn.Linear(WIDTH, 1)
        self.given = []

    def run(self, klass):
        for _ in range(klass.pieces):
            essays = torch.empty(PIECE, WIDTH)
            dist.recv(essays, src=1)
            self.given += self.mark(essays).flatten().tolist()
        self.given = self.given[-klass.pupils:]


@torch.no_grad()
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    stage = (Words, Essays, Marks)[rank]().eval()
    for evening in range(int(os.environ.get("EVENINGS", "30"))):
        for number, pupils in enumerate(REGISTER):
            if evening < 14 and number in ABSENT:
                continue  # this class hands in from the third week on
            stage.run(Class(number, pupils))
        total = torch.tensor([float(sum(stage.given))]) if rank == 2 else torch.zeros(1)
        dist.all_reduce(total)
        if rank == 0:
            print(f"evening {evening}: sum of the last class {total.item():.2f}", flush=True)


if __name__ == "__main__":
    main()
