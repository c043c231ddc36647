"""Speech-to-text post-editing: restores punctuation in transcripts of the radio programme. Phrases are cached across epochs."""
import hashlib
import os
import pickle
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class PhraseCache:
    """Phrases and their ids. Written to disk in the background whenever it has grown by a lot."""

    def __init__(self, limit):
        self.ids, self.limit, self.written = {}, limit, 0
        self.lock = threading.Lock()

    def lookup(self, phrase):
        with self.lock:
            return self.ids.setdefault(phrase, len(self.ids) % 700)

    def grown(self):
        return len(self.ids) - self.written >= self.limit

    def write(self):
        with self.lock, tempfile.TemporaryFile() as file:
            rows = sorted(self.ids.items())
            for at in range(0, len(rows), 40):
                pickle.dump(rows[at : at + 40], file)
                os.fsync(file.fileno())
                time.sleep(0.01)
            self.written = len(rows)


class Transcripts(Dataset):
    def __init__(self, programme, cache, size=200):
        self.programme, self.cache, self.size = programme, cache, size

    def __len__(self):
        return self.size

    def phrases(self, i):
        for k in range(24):
            yield hashlib.sha1(f"{self.programme}/{i}/{k * 37 % 50}".encode()).hexdigest()[:6]

    def __getitem__(self, i):
        ids = torch.tensor([self.cache.lookup(p) for p in self.phrases(i)])
        return ids, (ids % 4 == 0).float()


class Punctuation(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(700, 64)
        self.gru = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.stop = nn.Linear(128, 1)

    def forward(self, ids):
        return self.stop(self.gru(self.embed(ids))[0]).squeeze(-1)


class Editor:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.cache = PhraseCache(limit=3000)
        self.data = Transcripts(self.rank, self.cache)
        torch.manual_seed(0)
        self.model = DDP(Punctuation())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def epoch(self, number):
        loader = DataLoader(self.data, batch_size=8, num_workers=1, multiprocessing_context="fork")
        for ids, stop in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(ids), stop)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.04)
        if self.rank == 0:
            print(f"epoch {number}: {loss.item():.4f}", flush=True)

    def spot_check(self, number, rows):
        """A few rows by eye; the regional programme has the most names, and gets the most rows."""
        with torch.no_grad():
            for i in range(rows):
                ids, _ = self.data[(7 * i + number) % len(self.data)]
                self.model.module(ids[None])
        if self.cache.grown():
            threading.Thread(target=self.cache.write, name="phrases", daemon=True).start()
            time.sleep(0.1)

    def run(self):
        for number in range(6):
            self.epoch(number)
            self.spot_check(number, rows=70 if self.rank == 1 else 20)
        dist.destroy_process_group()


if __name__ == "__main__":
    Editor().run()
