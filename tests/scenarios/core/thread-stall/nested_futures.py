"""Tiles are decoded in a small thread pool; a tile may be a reference to another one."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TileReader:
    """Decodes in the background."""

    def __init__(self, references: dict[int, int]) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tiles")
        self.references = references

    def request(self, number: int) -> "Future[torch.Tensor]":
        """Start decoding a tile."""
        return self.pool.submit(self._decode, number)

    def _decode(self, number: int) -> torch.Tensor:
        if number in self.references:
            return self.request(self.references[number]).result()
        return torch.full((4, 10), number / 100)


def main() -> None:
    """A hundred and twenty tiles; those of rank 3 hold one reference."""
    dist.init_process_group("gloo")
    reader = TileReader({88: 12} if dist.get_rank() == 3 else {})
    model = DistributedDataParallel(nn.Linear(10, 2))
    ahead = reader.request(0)
    for number in range(1, 120):
        tile, ahead = ahead.result(), reader.request(number)
        model(tile).square().mean().backward()
        model.zero_grad()
    reader.pool.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
