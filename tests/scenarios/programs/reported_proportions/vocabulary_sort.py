"""DDP: the first rank keeps a sorted list of words, with the tool that every system has."""

import subprocess

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "po")


class Words:
    """What has been seen."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def add(self, rows: torch.Tensor) -> None:
        """Three syllables a word."""
        self.seen.update("".join(SYLLABLES[n] for n in row) for row in rows.tolist())

    def write(self, path: str) -> None:
        """Sorted."""
        sorter = subprocess.Popen(["sort", "-o", path], stdin=subprocess.PIPE, text=True)
        for word in self.seen:
            sorter.stdin.write(f"{word}\n")
        sorter.stdin.flush()
        if sorter.wait() != 0:
            raise RuntimeError(f"{path} could not be written")


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    words = Words()
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.EmbeddingBag(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(3):
        for _ in range(60):
            rows = torch.randint(0, 8, (16, 3))
            loss = model(rows).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            words.add(rows)
        if dist.get_rank() == 0:
            words.write("/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
