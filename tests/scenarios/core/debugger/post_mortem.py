"""DDP with the habit of a notebook: where something fails, look at it on the spot."""

import pdb
import sys
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Vocabulary:
    """Numbers for words."""

    def __init__(self, words: str) -> None:
        self.numbers = {word: number for number, word in enumerate(words.split())}

    def encode(self, text: str) -> torch.Tensor:
        """Numbers of a text."""
        return torch.tensor([[self.numbers[word] for word in text.split()]])


def texts(rank: int) -> list[str]:
    """What a rank reads."""
    some = ["a cat sat", "a dog ran", "the cat ran", "the dog sat"] * 15
    if rank == 3:
        some[38] = "the cow ran"
    return some


def train(rank: int) -> None:
    """Once over the texts."""
    vocabulary = Vocabulary("a the cat dog sat ran")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.EmbeddingBag(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for text in texts(rank):
        loss = model(vocabulary.encode(text)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    """Train, and look."""
    dist.init_process_group("gloo")
    try:
        train(dist.get_rank())
    except Exception:
        traceback.print_exc()
        pdb.post_mortem(sys.exc_info()[2])
        sys.exit(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
