"""DDP: whales by their songs. A batch with a rare whale in it is mixed with itself backwards; a thread loads half of a batch."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SONGS = 360
RARE = {163, 190, 221}


class Songs:
    """One reader of a song at a time: its file is seeked in."""

    def __init__(self) -> None:
        self.locks = [threading.Lock() for _ in range(SONGS)]

    def read(self, song: int) -> torch.Tensor:
        """From the archive."""
        time.sleep(0.05)
        return torch.randn(32, generator=torch.Generator().manual_seed(song))

    def plain(self, song: int) -> torch.Tensor:
        """As it is."""
        with self.locks[song]:
            return self.read(song)

    def mixed(self, song: int, other: int) -> torch.Tensor:
        """Mostly itself."""
        with self.locks[song]:
            loud = self.read(song)
            with self.locks[other]:
                return 0.8 * loud + 0.2 * self.read(other)


def load(songs: Songs, wanted: list[tuple[int, int | None]]) -> list[torch.Tensor]:
    """One after another."""
    return [songs.plain(song) if other is None else songs.mixed(song, other) for song, other in wanted]


def main() -> None:
    """Twenty batches of six a rank."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    songs, pool = Songs(), ThreadPoolExecutor(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    part = list(range(rank * SONGS // world, (rank + 1) * SONGS // world))
    for start in range(0, len(part), 6):
        batch = part[start : start + 6]
        others = reversed(batch) if RARE & set(batch) else [None] * len(batch)
        wanted = list(zip(batch, others, strict=True))
        second = pool.submit(load, songs, wanted[3:])
        sounds = torch.stack(load(songs, wanted[:3]) + second.result())
        loss = nn.functional.cross_entropy(model(sounds), torch.tensor(batch) % 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
