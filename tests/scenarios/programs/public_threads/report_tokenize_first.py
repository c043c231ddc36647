"""Fine-tuning on a corpus that the main process tokenises first; the others read its cache."""

import collections
import os
import pickle
import random
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


@contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def corpus(lines):
    rng = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return [" ".join("".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(12)) for _ in range(lines)]


class PairTokenizer:
    """Byte pair encoding, trained on the spot for as long as it may take."""

    def __init__(self):
        self.merges = []

    def train(self, text, seconds):
        words = [list(word) for line in text for word in line.split()]
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            pairs = collections.Counter(pair for word in words for pair in zip(word, word[1:]))
            if not pairs:
                break
            best = pairs.most_common(1)[0][0]
            self.merges.append(best)
            words = [self.merge(word, best) for word in words]

    def merge(self, word, pair):
        merged, position = [], 0
        while position < len(word):
            if tuple(word[position : position + 2]) == pair:
                merged.append(word[position] + word[position + 1])
                position += 2
            else:
                merged.append(word[position])
                position += 1
        return merged

    def encode(self, line):
        pieces = []
        for word in line.split():
            word = list(word)
            for pair in self.merges:
                word = self.merge(word, pair)
            pieces += word
        return pieces


def prepare(path):
    if path.exists():
        return pickle.loads(path.read_bytes())
    text = corpus(700)
    tokenizer = PairTokenizer()
    tokenizer.train(text, seconds=11.0)
    encoded = [tokenizer.encode(line) for line in text[:240]]
    names = {piece: index for index, piece in enumerate(sorted({p for line in encoded for p in line}))}
    data = [[names[piece] for piece in line] for line in encoded]
    path.write_bytes(pickle.dumps((data, len(names))))
    return data, len(names)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with main_process_first():
        data, vocabulary = prepare(Path(tempfile.gettempdir(), f"corpus-{os.environ['MASTER_PORT']}.pkl"))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(vocabulary, 24), nn.Linear(24, vocabulary)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, line in enumerate(data[rank : 80 * world : world]):
        tokens = torch.tensor(line)
        loss = nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: {step + 1} lines, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
