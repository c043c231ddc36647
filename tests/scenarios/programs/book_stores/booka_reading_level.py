"""Estimate the reading level (grade 1 to 9) of children's books from sentence statistics."""
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

PUBLISHERS = {"alder": 180, "birch": 150, "cedar": 190, "dogwood": 170, "elm": 120, "fir": 160}


@dataclass
class Config:
    batch: int = 4
    epochs: int = 2
    lr: float = 1e-2


class Excerpts(IterableDataset):
    def __init__(self, rank, world):
        self.houses = sorted(PUBLISHERS)[rank::world]

    def __iter__(self):
        for house in self.houses:
            rng = random.Random(house)
            for _ in range(PUBLISHERS[house]):
                words = [rng.randint(1, 12) for _ in range(9000)]
                sentences = [words[i:i + 15] for i in range(0, len(words), 15)]
                mean = sum(map(sum, sentences)) / len(sentences)
                long = sum(w > 7 for w in words) / len(words)
                yield torch.tensor([mean / 100, long, len(set(words)) / 12]), rng.randint(0, 8)


class LevelModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 9))

    def forward(self, features):
        return self.net(features)


def fit(config, rank, world):
    model = DDP(LevelModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    loader = DataLoader(Excerpts(rank, world), batch_size=config.batch)
    for epoch in range(config.epochs):
        right = torch.zeros(2)
        for features, level in loader:
            out = model(features)
            loss = nn.functional.cross_entropy(out, level)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += torch.tensor([(out.argmax(1) == level).sum().item(), len(level)])
        table = [torch.zeros(2) for _ in range(world)]
        dist.all_gather(table, right)
        if rank == 0:
            total = torch.stack(table).sum(0)
            print(f"epoch {epoch}: accuracy {total[0] / total[1]:.3f} over {int(total[1])} excerpts", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    fit(Config(), dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
