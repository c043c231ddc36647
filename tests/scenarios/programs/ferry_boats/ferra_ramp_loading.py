"""Assigns vehicles to lanes of the car deck; one harbour per process."""
import collections
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

HARBOURS = ("Vik", "Holm", "Sund")


class Vehicles(Dataset):
    def __init__(self, harbour, count):
        gen = torch.Generator().manual_seed(sum(map(ord, harbour)))
        self.size = torch.rand(count, 4, generator=gen)
        if harbour == "Sund":
            self.size[1500:1502, 0] = 2.4  # coaches
        self.lane = (self.size.sum(1) * 2).long().clamp(0, 7)

    def __len__(self):
        return len(self.size)

    def __getitem__(self, i):
        return self.size[i], self.lane[i]


class Board:
    """What the harbour master sees: means over all harbours."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.pending = collections.defaultdict(list)

    def add(self, name, value):
        self.pending[name].append(float(value))

    def flush(self, step):
        shown = {}
        for name in sorted(self.pending):
            values = self.pending[name]
            local = torch.tensor([sum(values) / len(values)])
            shown[name] = self.accelerator.gather(local).mean().item()
        self.pending.clear()
        self.accelerator.print(step, {k: round(v, 3) for k, v in shown.items()})


def main():
    accelerator = Accelerator(cpu=True)
    harbour = HARBOURS[accelerator.process_index]
    data = DataLoader(Vehicles(harbour, 6400), batch_size=32)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 8))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 3e-3))
    board = Board(accelerator)
    for step, (size, lane) in enumerate(data):
        time.sleep(0.06)
        scores = model(size)
        loss = nn.functional.cross_entropy(scores, lane)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        board.add("loss", loss.detach())
        board.add("hit", (scores.argmax(1) == lane).float().mean())
        long = size[:, 0] > 2.0
        if long.any():
            board.add("coach_hit", (scores.argmax(1) == lane)[long].float().mean())
        if step % 5 == 4:
            board.flush(step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
