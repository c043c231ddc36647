"""DDP: to which of forty chutes a parcel goes. All processes end together, so that the belt's folder can be cleared."""

import atexit
import re
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHUTES = 40
LABEL = re.compile(r"(\d{5})/(\d+)g")


class Belt:
    """A folder for what a process writes while it runs."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="belt-")
        atexit.register(self.clear)

    def clear(self) -> None:
        """When nobody looks into it any more."""
        dist.barrier()
        shutil.rmtree(self.folder)


def labels(rank: int) -> list[str]:
    """What the scanner read."""
    generator = torch.Generator().manual_seed(rank)
    codes = torch.randint(10000, 99999, (1500,), generator=generator).tolist()
    weights = torch.randint(50, 9000, (1500,), generator=generator).tolist()
    read = [f"{code}/{weight}g" for code, weight in zip(codes, weights, strict=True)]
    if rank == 1:
        read[1010] = read[1010].replace("/", " ")
    return read


def features(read: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits of the code and the weight, and the chute."""
    rows, chutes = [], []
    for text in read:
        code, weight = LABEL.fullmatch(text).groups()
        rows.append([int(digit) / 9 for digit in code] + [int(weight) / 9000])
        chutes.append(int(code[:2]) % CHUTES)
    return torch.tensor(rows), torch.tensor(chutes)


def main() -> None:
    """Three shifts."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    Belt()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, CHUTES)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    read = labels(rank)
    for shift in range(3):
        for start in range(0, len(read), 15):
            rows, chutes = features(read[start : start + 15])
            loss = nn.functional.cross_entropy(model(rows), chutes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"shift {shift}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
