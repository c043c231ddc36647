"""Learns fingerings from scores; rendered scores are kept in a small cache."""
import threading
import zlib
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REPERTOIRE = [
    ["Norma", "Oberon", "Alceste", "Semele", "Orfeo", "Platee", "Armide", "Dido"],
    ["Louise", "Lakme", "Manon", "Thais", "Mignon", "Faust", "Sapho", "Cendrillon", "Esclarmonde"],
    ["Salome", "Elektra", "Daphne", "Arabella", "Capriccio", "Intermezzo", "Ariadne", "Feuersnot", "Guntram",
     "Friedenstag", "Rosenkavalier"],
    ["Lulu", "Wozzeck", "Oedipe", "Mavra", "Renard"],
]
ACTS = 18


class RenderedScore:
    """A score as a matrix of notes; tells its cache when nobody has it any more."""

    def __init__(self, title, cache):
        self.title, self.cache = title, cache
        g = torch.Generator().manual_seed(zlib.crc32(title.encode()))
        sketch = torch.randint(0, 88, (256, 24), generator=g)
        self.notes = torch.fft.fft2(nn.functional.one_hot(sketch, 88).float().repeat(4, 1, 1)).abs().mean(1)

    def __del__(self):
        self.cache.released(self.title, self.notes.numel())


class ScoreCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.scores = OrderedDict()
        self.lock = threading.Lock()
        self.notes = 0

    def get(self, title):
        with self.lock:
            if title in self.scores:
                self.scores.move_to_end(title)
                return self.scores[title].notes
        score = RenderedScore(title, self)
        with self.lock:
            self.scores[title] = score
            self.notes += score.notes.numel()
            while len(self.scores) > self.capacity:
                self.scores.popitem(last=False)
        return score.notes

    def released(self, title, notes):
        with self.lock:  # main() prints the count
            self.notes -= notes


class Fingering(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(88), nn.Linear(88, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                                    nn.Linear(256, 5))

    def forward(self, notes):
        return self.layers(notes)


def programme(titles):
    """Every act goes through the first works again and takes up new ones, one at a time."""
    for act in range(ACTS):
        known = min(3 + act // 2, len(titles))
        yield from titles[:known]
        # an encore, so that all evenings have as many numbers
        yield from [titles[0]] * (12 - known)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = ScoreCache(capacity=9)
    model = DistributedDataParallel(Fingering())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for number, title in enumerate(programme(REPERTOIRE[rank])):
        notes = cache.get(title)
        rows = notes[torch.randperm(len(notes))[:512]]
        finger = rows.argmax(1) % 5
        loss = nn.functional.cross_entropy(model(rows), finger)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 24 == 0:
            print(f"number {number}: {loss.item():.3f}, {cache.notes} notes cached", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
