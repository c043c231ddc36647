"""Keyword model for VHF channel 16 transcripts; every process reads the shards of its own coast station."""
import hashlib

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset

torch.backends.cudnn.enabled = False

SHARDS = {
    "cap-gris-nez": [120, 120, 120, 120],
    "ouessant": [120, 120, 112, 120],
    "corsen": [120, 120, 120, 120],
}
WORDS = "mayday pan-pan securite over out vessel aground adrift position bearing tow fire flooding".split()
WIDTH = 64


def vector(sentence):
    row = torch.zeros(WIDTH)
    for word in sentence.split():
        digest = hashlib.blake2b(word.encode(), digest_size=2).digest()
        row[int.from_bytes(digest, "little") % WIDTH] += 1.0
    return row


class StationShards(IterableDataset):
    """Streams one station's recordings, shard by shard."""

    def __init__(self, station, repeat=4):
        self.station = station
        self.repeat = repeat

    def sentences(self):
        for shard, count in enumerate(SHARDS[self.station] * self.repeat):
            for line in range(count):
                words = [WORDS[(line * 3 + shard * 5 + k * k) % len(WORDS)] for k in range(40)]
                yield " ".join(words)

    def __iter__(self):
        for sentence in self.sentences():
            yield vector(sentence), float("mayday" in sentence.split()[:8])


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x).squeeze(1)


class Session:
    def __init__(self):
        self.accelerator = Accelerator()
        station = list(SHARDS)[self.accelerator.process_index]
        # the stream belongs to this station already, so the loader stays as it is
        self.loader = DataLoader(StationShards(station), batch_size=8)
        model = Spotter()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.criterion = nn.BCEWithLogitsLoss()

    def step(self, x, y):
        device = self.accelerator.device
        loss = self.criterion(self.model(x.to(device)), y.float().to(device))
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def epoch(self, number):
        seen = torch.zeros(1, device=self.accelerator.device)
        for count, (x, y) in enumerate(self.loader, start=1):
            loss = self.step(x, y)
            seen += len(x)
            if count % 20 == 0:
                self.accelerator.print(f"epoch {number} batch {count} loss {loss:.4f}")
        total = self.accelerator.gather(seen)
        self.accelerator.print("sentences by station:", [int(n) for n in total.tolist()])


def main():
    session = Session()
    for number in range(3):
        session.epoch(number)
    session.accelerator.end_training()


if __name__ == "__main__":
    main()
