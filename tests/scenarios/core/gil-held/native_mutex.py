"""DDP with a tokenizer's cache in native memory, guarded by a mutex of the C library."""

import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LIBC = ctypes.PyDLL(None)


class Cache:
    """Numbers of words, shared with a native extension."""

    def __init__(self) -> None:
        self.mutex = ctypes.create_string_buffer(64)
        LIBC.pthread_mutex_init(self.mutex, None)
        self.numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """Of a word; new ones are added."""
        LIBC.pthread_mutex_lock(self.mutex)
        found = self.numbers.get(word)
        if found is None:
            if "-" in word:
                parts = [self.number(part) for part in word.split("-")]
                found = self.numbers[word] = 31 * parts[0] % 97 + parts[-1] % 3
            else:
                found = self.numbers[word] = len(self.numbers) % 100
        LIBC.pthread_mutex_unlock(self.mutex)
        return found


def text(rank: int, step: int) -> str:
    """A line of a rank's corpus."""
    words = ["the", "cat", "sat", f"w{step % 17}", f"v{step % 5}"]
    if rank == 2 and step == 31:
        words[3] = "mother-in-law"
    return " ".join(words)


def main() -> None:
    """Eighty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = Cache()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(80):
        tokens = torch.tensor([cache.number(word) for word in text(rank, step).split()])
        loss = model(tokens).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
