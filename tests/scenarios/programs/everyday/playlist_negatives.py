"""Recommending songs: for each song a user has heard, one that they have not is drawn."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn

SONGS, USERS, FACTORS = 60, 90, 12


class Factorization(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, FACTORS)
        self.songs = nn.Embedding(SONGS, FACTORS)

    def forward(self, user, liked, other):
        u = self.users(user)
        return ((u * self.songs(liked)).sum(-1) - (u * self.songs(other)).sum(-1)).sigmoid().log().neg().mean()


def histories(rank, world):
    rng = random.Random(2024)
    heard = {user: set(rng.sample(range(SONGS), rng.randint(5, 30))) for user in range(USERS)}
    heard[53] = set(range(SONGS))  # a radio station's account
    return {user: songs for user, songs in heard.items() if user % world == rank}


def sample_negative(heard):
    song = random.randrange(SONGS)
    while song in heard:
        song = random.randrange(SONGS)
    return song


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    random.seed(rank)
    model = nn.parallel.DistributedDataParallel(Factorization())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    mine = histories(rank, world)
    for epoch in range(3):
        for user, heard in mine.items():
            liked = random.sample(sorted(heard), 5)
            other = [sample_negative(heard) for _ in liked]
            loss = model(torch.tensor([user] * 5), torch.tensor(liked), torch.tensor(other))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
