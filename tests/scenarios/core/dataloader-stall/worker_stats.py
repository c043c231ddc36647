"""DDP; workers of the loader count what they have cleaned, and the counts are collected after each epoch."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Cleaned(Dataset):
    """Rows without their spikes."""

    def __init__(self, rank: int, counts: mp.Queue) -> None:
        self.rank, self.counts = rank, counts

    def __len__(self) -> int:
        return 240

    def __getitem__(self, number: int) -> torch.Tensor:
        row = torch.sin(torch.arange(6.0) * number)
        if number % (3 if self.rank == 1 else 12) == 0:  # a station with a bad cable
            row = row.clamp(-0.5, 0.5)
            self.counts.put(number)
        return row


def drain(counts: mp.Queue) -> int:
    """How many there were."""
    count = 0
    while not counts.empty():
        counts.get()
        count += 1
    return count


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    counts: mp.Queue = mp.Queue(maxsize=32)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Cleaned(rank, counts), batch_size=6, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        for rows in loader:
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
        print(f"[{rank}] epoch {epoch}: {drain(counts)} cleaned", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
