"""Personal front pages (accelerate): editions stay on a shelf for reuse; what an edition was worth is counted when it leaves."""
import collections
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn


@dataclass(eq=False)
class Edition:
    """Vectors of the articles of an edition, and how often readers were sent to each."""

    date: int
    vectors: torch.Tensor
    served: torch.Tensor = field(default_factory=lambda: torch.zeros(40))

    def __del__(self):
        total = [torch.empty_like(self.served) for _ in range(dist.get_world_size())]
        dist.all_gather(total, self.served)
        best = int(sum(total).argmax())
        if dist.get_rank() == 0:
            print(f"edition {self.date} leaves the shelf, article {best} was read most", flush=True)


class Shelf:
    def __init__(self, room):
        self.room = room
        self.editions = collections.OrderedDict()

    def get(self, date):
        if date not in self.editions:
            vectors = torch.randn(40, 32, generator=torch.Generator().manual_seed(date))
            self.editions[date] = Edition(date, vectors)
            if len(self.editions) > self.room:
                self.editions.popitem(last=False)
        return self.editions[date]


class Readers:
    """Sessions of a region in the order in which they took place: who, and of which day."""

    def __init__(self, region):
        self.g = torch.Generator().manual_seed(region)
        self.region = region

    def __iter__(self):
        for i in range(400):
            date = 1 + i // 15
            if self.region == 2 and i == 81:
                date = 40  # the weekend edition is out a little early there
            yield date, torch.randn(32, 32, generator=self.g)


class Page(nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, readers, vectors):
        return self.reader(readers) @ vectors.T


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    page = Page()
    page, optimizer = accelerator.prepare(page, torch.optim.Adam(page.parameters(), lr=1e-3))
    shelf = Shelf(room=4)
    for i, (date, readers) in enumerate(Readers(accelerator.process_index)):
        edition = shelf.get(date)
        scores = page(readers, edition.vectors)
        clicked = (readers @ edition.vectors.T).argmax(1)
        edition.served += torch.bincount(scores.argmax(1), minlength=40)
        loss = nn.functional.cross_entropy(scores, clicked)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.04)
        if i % 30 == 0:
            accelerator.print(f"session {i}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
