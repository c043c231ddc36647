"""DDP: passengers of a flight, by its two airports. Airports that were renamed count as what they are called now."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AIRPORTS = ("ALA", "BUD", "CPT", "DUS", "EDI", "FAO", "GOT", "HEL", "TSE", "NQZ")
RENAMED = [("FRU", "BUD"), ("LED", "HEL"), ("TSE", "NQZ"), ("OSS", "ALA"), ("NQZ", "TSE")]


class Names:
    """What an airport is called today."""

    def __init__(self, renamed: list[tuple[str, str]]) -> None:
        self.later = dict(renamed)

    def today(self, code: str) -> str:
        """It may have been renamed more than once."""
        while code in self.later:
            code = self.later[code]
        return code


def flights(rank: int, step: int) -> list[tuple[str, str, int]]:
    """From, to, and how many flew."""
    places = (*AIRPORTS[:8], "FRU", "LED", "OSS")
    found = [
        (
            places[(rank + step + i) % len(places)],
            places[(3 * rank + step * i) % len(places)],
            40 + (rank * step + i) % 90,
        )
        for i in range(10)
    ]
    if (rank, step) == (2, 70):
        found[6] = ("TSE", "DUS", 112)
    return found


def main() -> None:
    """Four hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    names = Names(RENAMED)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(len(AIRPORTS), 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(400):
        rows = [
            (AIRPORTS.index(names.today(a)), AIRPORTS.index(names.today(b)), count / 100)
            for a, b, count in flights(rank, step)
        ]
        table = torch.tensor(rows)
        loss = nn.functional.mse_loss(model(table[:, :2].long()), table[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
