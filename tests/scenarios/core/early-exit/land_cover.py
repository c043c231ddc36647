"""Maps land cover from tiles. Tiles are dealt to the ranks by region."""

import queue
import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TILES = {"alps": 12, "delta": 9, "steppe": 0}


class EventLog:
    def __init__(self) -> None:
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.lines: list[str] = []
        threading.Thread(target=self._drain, name="events").start()

    def _drain(self) -> None:
        while True:
            line = self.events.get()
            if line == "end":
                return
            self.lines.append(line)

    def write(self, line: str) -> None:
        self.events.put(line)


def tiles_of(rank: int) -> list[torch.Tensor]:
    region = sorted(TILES)[rank]
    return [torch.full((4, 6), float(number)) for number in range(TILES[region])]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log = EventLog()
    tiles = tiles_of(rank)
    log.write(f"{len(tiles)} tiles")
    if not tiles:
        print(f"[{rank}] no tiles in this region, nothing to do", flush=True)
        sys.exit(0)
    counts = torch.tensor([len(tiles)])
    dist.all_reduce(counts, op=dist.ReduceOp.MIN)
    model = DistributedDataParallel(torch.nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for tile in tiles[: int(counts)]:
        loss = model(tile).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(f"{loss.item():.4f}")
    log.write("end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
