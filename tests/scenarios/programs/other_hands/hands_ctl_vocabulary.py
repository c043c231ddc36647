"""Builds a vocabulary on the main process first, then trains; the cache is rebuilt for the second corpus."""

import contextlib
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


class Vocabulary:
    def __init__(self, corpus, folder):
        self.corpus, self.path = corpus, folder / f"{corpus}.json"

    def load(self):
        if not self.path.exists():
            counts = Counter()
            end = time.monotonic() + 11
            while time.monotonic() < end:
                counts.update(f"{self.corpus} {i} {i * i % 97}"[:12] for i in range(3000))
                time.sleep(0.05)
            self.path.write_text(json.dumps([word for word, _ in counts.most_common(500)]))
        return json.loads(self.path.read_text())


def train(words, steps):
    model = nn.EmbeddingBag(len(words), 16)
    for _ in range(steps):
        loss = model(torch.randint(len(words), (8, 20))).square().mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.1 * p.grad
        time.sleep(0.1)
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    name = [tempfile.mkdtemp(prefix="hands-vocabulary-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(name)
    for corpus in ("news", "novels"):
        with main_process_first():
            words = Vocabulary(corpus, Path(name[0])).load()
        loss = train(words, 20)
        if dist.get_rank() == 0:
            print(f"{corpus}: {len(words)} words, loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
