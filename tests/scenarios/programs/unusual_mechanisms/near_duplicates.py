"""Near-duplicates are removed by the rank that holds the corpus, by shingles and minimum hashes; the others are at a barrier.

Nothing hangs: after some twenty seconds the job goes on. Run by ``torchrun --nproc-per-node 4``.
"""

import random
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist


def shingles(text: str, width: int = 5) -> Iterator[bytes]:
    """Overlapping pieces of a text."""
    for start in range(len(text) - width + 1):
        yield text[start : start + width].encode()


class Sketch:
    """Minimum hashes of a text's shingles."""

    def __init__(self, functions: int) -> None:
        self.salts = [str(number).encode() for number in range(functions)]

    def of(self, text: str) -> tuple[int, ...]:
        """One minimum for each function."""
        pieces = list(shingles(text))
        return tuple(min(zlib.crc32(piece, zlib.crc32(salt)) for piece in pieces) for salt in self.salts)


def unique(texts: Iterable[str], sketch: Sketch) -> list[str]:
    """The first text of each bucket."""
    buckets: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for text in texts:
        buckets[sketch.of(text)[:4]].append(text)
    return [texts[0] for texts in buckets.values()]


def corpus(seconds: float) -> Iterator[str]:
    """Texts for as long as that."""
    chance, until = random.Random(1), time.monotonic() + seconds
    while time.monotonic() < until:
        yield "".join(chance.choices("abcdefgh ", k=400))


def main() -> None:
    """Clean, then train."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        print(len(unique(corpus(20.0), Sketch(16))), "texts are left", flush=True)
    dist.barrier()
    weight = torch.ones(4)
    for _ in range(50):
        dist.all_reduce(weight)
        weight /= dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
