"""Readers of a loader are forked while a thread of the rank is inside a native cache. Run by torchrun."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

LIBC = ctypes.CDLL(None)
CACHE = ctypes.create_string_buffer(64)


class Tiles(Dataset):
    """Tiles of a map, found through the cache."""

    def __len__(self):
        return 64

    def __getitem__(self, number):
        LIBC.pthread_mutex_lock(CACHE)
        tile = torch.full((4,), float(number))
        LIBC.pthread_mutex_unlock(CACHE)
        return tile


def warm(seconds):
    """Fill the cache ahead."""
    LIBC.pthread_mutex_lock(CACHE)
    time.sleep(seconds)
    LIBC.pthread_mutex_unlock(CACHE)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    LIBC.pthread_mutex_init(CACHE, None)
    for epoch in range(4):
        slow = (rank, epoch) == (0, 2)
        warming = threading.Thread(target=warm, args=(1.5 if slow else 0.0,))
        warming.start()
        if slow:
            time.sleep(0.2)
        else:
            warming.join()
        loader = DataLoader(Tiles(), batch_size=16, num_workers=1, multiprocessing_context="fork")
        for batch in loader:
            total = batch.sum()
            dist.all_reduce(total)
        warming.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
