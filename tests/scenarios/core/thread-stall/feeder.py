"""DDP: a thread feeds rows from files to training, and leaves out a file whose checksum is wrong."""

import queue
import threading
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def load(number: int, rank: int) -> tuple[bytes, int]:
    """The bytes of a file, and the checksum that was kept beside it."""
    content = bytes((number * 7 + n) % 251 for n in range(64))
    return content, zlib.crc32(content) + ((number, rank) == (90, 1))


class Feeder(threading.Thread):
    """One file after another."""

    def __init__(self, rank: int, files: int) -> None:
        super().__init__(name="feeder", daemon=True)
        self.rank, self.files, self.rows = rank, files, queue.Queue(maxsize=16)

    def run(self) -> None:
        for number in range(self.files):
            content, checksum = load(number, self.rank)
            if zlib.crc32(content) != checksum:
                print(f"[{self.rank}] file {number} is damaged")
                return
            self.rows.put(torch.tensor(list(content), dtype=torch.float32).view(4, 16) / 251)


def main() -> None:
    """Two hundred files, a step each."""
    dist.init_process_group("gloo")
    feeder = Feeder(dist.get_rank(), files=200)
    feeder.start()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16)))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(feeder.files):
        rows = feeder.rows.get()
        loss = (model(rows) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
