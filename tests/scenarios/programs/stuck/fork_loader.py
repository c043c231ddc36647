"""DataLoader workers are forked while the metrics thread holds the log's lock, and a worker's first line waits for it.

Run by ``torchrun --nproc-per-node 3``.
"""

import io
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Journal:
    """A log of the user's own: one lock, one buffer."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.buffer = io.StringIO()

    def write(self, line: str, flush_s: float = 0.0) -> None:
        """Append a line; flushing may take a while on a network file system."""
        with self.guard:
            self.buffer.write(line + "\n")
            time.sleep(flush_s)


JOURNAL = Journal()


class Squares(Dataset):
    """Numbers and their squares; damaged samples are written to the journal."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 8 == 5:
            JOURNAL.write(f"sample {index} was repaired")
        return torch.tensor([float(index), float(index) ** 2])


def main() -> None:
    """Two epochs; the workers start anew in each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Squares()
    sampler = DistributedSampler(data, shuffle=False)
    for epoch in range(2):
        if (rank, epoch) == (2, 1):
            threading.Thread(target=JOURNAL.write, args=("epoch 1 begins", 1.5), daemon=True).start()
            time.sleep(0.2)
        for batch in DataLoader(data, batch_size=4, sampler=sampler, num_workers=1):
            total = batch.sum(0)
            dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
