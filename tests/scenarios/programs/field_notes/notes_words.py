"""Keyword spotting with transcripts: the vocabulary is refreshed between epochs, loader workers encode text."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Vocabulary:
    """Maps words to ids. A refresh reads the list of new words in the background."""

    def __init__(self, words):
        self.lock = threading.Lock()
        self.ids = {w: i for i, w in enumerate(words)}

    def encode(self, word):
        with self.lock:
            return self.ids.get(word, 0)

    def refresh(self, source):
        with self.lock:
            for word in source():
                self.ids.setdefault(word, len(self.ids))

    def refresh_in_background(self, source):
        threading.Thread(target=self.refresh, args=(source,), name="vocabulary", daemon=True).start()


def word_list():
    """The glossary service answers page by page."""
    for page in range(20):
        time.sleep(0.1)
        yield f"word{page % 40}"


class Clips(Dataset):
    def __init__(self, vocabulary, size):
        self.vocabulary, self.size = vocabulary, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return torch.randn(32, generator=g), self.vocabulary.encode(f"word{index % 40}")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    vocabulary = Vocabulary([f"word{i}" for i in range(40)])
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        loader = DataLoader(Clips(vocabulary, 96), batch_size=8, num_workers=2, multiprocessing_context="fork")
        for sound, word in loader:
            loss = nn.functional.cross_entropy(model(sound), word)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            vocabulary.refresh_in_background(word_list)
            torch.save(model.module.state_dict(), f"/tmp/notes-words-{epoch}.pt")
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
