"""The first batch of one rank takes four seconds, as its worker opens the archive; then all goes well.

Run by ``torchrun --nproc-per-node 2``.
"""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset):
    """Samples in an archive that is opened with the first one."""

    def __init__(self, open_s: float) -> None:
        self.open_s = open_s
        self.opened = False

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.opened:
            time.sleep(self.open_s)
            self.opened = True
        return torch.tensor([float(index)])


def main() -> None:
    """One epoch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for batch in DataLoader(Archive(4.0 if rank == 1 else 0.0), batch_size=4, num_workers=1):
        mean = batch.mean()
        dist.all_reduce(mean)
    print(f"rank {rank} done", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
