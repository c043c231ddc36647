"""Builds the vocabulary of the tasting notes, then trains word vectors on it."""

import collections
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SYLLABLES = "ba ce di fo gu la me ni po ru sa te vi zo".split()


def corpus(number, seed):
    pick = random.Random(seed)
    return [
        " ".join("".join(pick.choices(SYLLABLES, k=pick.randint(1, 4))) for _ in range(30)) for _ in range(number)
    ]


class Vocabulary:
    """Byte pairs, merged one after another by frequency."""

    def __init__(self, notes):
        self.words = collections.Counter(word for note in notes for word in note.split())
        self.pieces = {word: list(word) for word in self.words}
        self.merges = []

    def merge_once(self):
        pairs = collections.Counter()
        for word, count in self.words.items():
            pieces = self.pieces[word]
            for pair in zip(pieces, pieces[1:]):
                pairs[pair] += count
        if not pairs:
            return
        best = pairs.most_common(1)[0][0]
        for word, pieces in self.pieces.items():
            merged, i = [], 0
            while i < len(pieces):
                if tuple(pieces[i : i + 2]) == best:
                    merged.append(pieces[i] + pieces[i + 1])
                    i += 2
                else:
                    merged.append(pieces[i])
                    i += 1
            self.pieces[word] = merged
        self.merges.append(best)

    def build(self, seconds):
        began, shown = time.monotonic(), 0.0
        while time.monotonic() - began < seconds:
            self.merge_once()
            if time.monotonic() - shown > 2:
                shown = time.monotonic()
                print(f"vocabulary: {len(self.merges)} merges", flush=True)
        return len({p for pieces in self.pieces.values() for p in pieces})


def train(model, steps, size, label):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        words = torch.randint(size, (64,))
        loss = (model(words) - torch.sin(words.float()).unsqueeze(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    if dist.get_rank() == 0:
        print(f"{label}: {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Embedding(4096, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    )
    train(model, 100, 40, "letters")
    size = [0]
    if dist.get_rank() == 0:
        size = [Vocabulary(corpus(400, seed=1)).build(seconds=14)]
    dist.broadcast_object_list(size, src=0)
    train(model, 100, max(2, min(size[0], 4096)), "pieces")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
