"""World model in three processes: encoder, dynamics and reward head. Each part has a loss of its own (no backward through the wire)."""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Settings:
    chunk: int = 16
    chunks: int = 4
    latent: int = 96
    games: int = 64
    episodes: int = 400


class Recording:
    """Episodes of a shooter; the ship is lost before the end now and then."""

    def __init__(self, s):
        self.s = s
        self.generator = torch.Generator().manual_seed(17)
        self.physics = torch.randn(256, 256, generator=self.generator) / 16

    def length(self, number):
        full = self.s.chunk * self.s.chunks
        return full - 20 if number % 37 == 36 else full

    def episode(self, number):
        screen = torch.randn(self.s.games, 256, generator=self.generator)
        screens = []
        for _ in range(self.length(number)):
            screen = torch.tanh(screen @ self.physics)
            screens.append(screen)
        return torch.stack(screens).split(self.s.chunk)


class Part:
    def __init__(self, s, rank):
        self.s, self.rank = s, rank
        torch.manual_seed(rank)
        self.net = self.make()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def learn(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def receive(self):
        latent = torch.empty(self.s.chunk, self.s.games, self.s.latent)
        dist.recv(latent, src=self.rank - 1)
        return latent

    def give(self, latent):
        dist.send(latent.detach().contiguous(), dst=self.rank + 1)


class Encoder(Part):
    def make(self):
        self.recording = Recording(self.s)
        self.back = nn.Linear(self.s.latent, 256)
        return nn.ModuleList([nn.Linear(256, self.s.latent), self.back])

    def episode(self, number):
        total = 0.0
        for screens in self.recording.episode(number):
            if screens.shape[0] < self.s.chunk:
                screens = F.pad(screens, (0, 0, 0, 0, 0, self.s.chunk - screens.shape[0]))
            latent = torch.tanh(self.net[0](screens))
            total += self.learn(F.mse_loss(self.back(latent), screens))
            self.give(latent)
        return total


class Dynamics(Part):
    def make(self):
        return nn.GRU(self.s.latent, self.s.latent)

    def episode(self, number):
        total = 0.0
        for _ in range(self.s.chunks):
            latent = self.receive()
            ahead, _ = self.net(latent)
            total += self.learn(F.mse_loss(ahead[:-1], latent[1:]))
            self.give(ahead)
        return total


class RewardHead(Part):
    def make(self):
        return nn.Sequential(nn.Linear(self.s.latent, 64), nn.SiLU(), nn.Linear(64, 1))

    def episode(self, number):
        total = 0.0
        for _ in range(self.s.chunks):
            latent = self.receive()
            total += self.learn(F.mse_loss(self.net(latent).squeeze(-1), latent.mean(-1)))
        return total


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    part = (Encoder, Dynamics, RewardHead)[rank](Settings(), rank)
    for number in range(part.s.episodes):
        losses = torch.zeros(3)
        losses[rank] = part.episode(number)
        dist.all_reduce(losses)
        if rank == 0 and number % 6 == 0:
            print(f"episode {number} [{os.getpid()}] " + " ".join(f"{x:.4f}" for x in losses.tolist()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
