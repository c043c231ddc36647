"""DDP: dialects of the same language. The first rank numbers words that come up during training, for all."""

import threading
from multiprocessing.connection import Client, Listener

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COMMON = ("and", "the", "house", "rain", "bread", "child", "road", "water", "stone", "sheep")
KEY = b"dialects"
MOST_WORDS = 100


def number_words(listener: Listener) -> None:
    """Answers with the number of each word it is sent."""
    numbers: dict[str, int] = {}
    while True:
        with listener.accept() as guest:
            try:
                while True:
                    guest.send(len(COMMON) + numbers.setdefault(guest.recv(), len(numbers)))
            except EOFError:
                continue


class Words:
    """Common words are known to all, others are asked for once."""

    def __init__(self, address: str) -> None:
        self.address, self.connection = address, None
        self.known = {word: number for number, word in enumerate(COMMON)}

    def number(self, word: str) -> int:
        """Of a word."""
        if word not in self.known:
            if self.connection is None:
                self.connection = Client(self.address, authkey=KEY)
            self.connection.send(word)
            self.known[word] = self.connection.recv()
        return self.known[word]


def sentence(rank: int, step: int) -> list[str]:
    """Eight words of a village."""
    words = [COMMON[(rank + step * i) % len(COMMON)] for i in range(8)]
    if (rank, step) in ((1, 20), (1, 33), (2, 60)):
        words[4] = f"dialect-{rank}-{step}"
    return words


def main() -> None:
    """Three hundred sentences."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    address = [None]
    if rank == 0:
        listener = Listener(authkey=KEY)
        threading.Thread(target=number_words, args=(listener,), daemon=True).start()
        address = [listener.address]
    dist.broadcast_object_list(address, src=0)
    words = Words(address[0])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(MOST_WORDS, 12), nn.Linear(12, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(300):
        numbers = torch.tensor([[words.number(word) for word in sentence(rank, step)]])
        loss = nn.functional.cross_entropy(model(numbers), torch.tensor([rank]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
