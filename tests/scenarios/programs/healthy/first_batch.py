"""The first batch takes far longer than all others: a cache is filled, on every rank, by nine to eleven seconds of work."""

import time
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Features:
    """Rows made from text, which has to be looked at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.checksums: list[int] = []

    def batch(self) -> torch.Tensor:
        """Eight rows."""
        if not self.checksums:
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                self.checksums.append(zlib.crc32(bytes(200_000), len(self.checksums)))
        return torch.randn(8, 12)


def main() -> None:
    """Thirty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    features = Features(9.0 + dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(12, 12))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(30):
        optimizer.zero_grad()
        model(features.batch()).square().mean().backward()
        optimizer.step()
        print(f"[{dist.get_rank()}] step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
