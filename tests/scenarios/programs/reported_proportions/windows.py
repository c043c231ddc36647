"""DDP: long recordings are cut into windows that overlap; how much is set by the length of the recording."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WINDOW = 64


def length(number: int, rank: int) -> int:
    """Of a recording, in samples."""
    return 70 if (number, rank) == (110, 2) else 256 + 32 * ((number + rank) % 4)


def overlap(samples: int) -> int:
    """The shorter a recording, the more of it is used twice."""
    return min(WINDOW, 4096 // (samples - 6)) if samples < 128 else WINDOW // 4


def cut(samples: int) -> list[tuple[int, int]]:
    """Begin and end of every window."""
    windows, begin = [], 0
    while begin + WINDOW <= samples:
        windows.append((begin, begin + WINDOW))
        begin += WINDOW - overlap(samples)
        if len(windows) > 64:
            windows = windows[-64:]
    return windows


def main() -> None:
    """Two hundred recordings."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WINDOW, 8), nn.Tanh(), nn.Linear(8, WINDOW)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(200):
        sound = torch.randn(length(number, rank))
        rows = torch.stack([sound[begin:end] for begin, end in cut(len(sound))])
        loss = (model(rows) - rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
