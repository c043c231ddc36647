"""Reads tasting notes with a frozen, sharded encoder and trains a small head for the vintage's rating."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCAB, WIDTH, FAULTS = 300, 64, range(290, 300)


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, hidden), nn.SiLU(), nn.Linear(hidden, WIDTH))

    def forward(self, x):
        return x + self.net(x)


class NoteEncoder(nn.Module):
    """A trunk for every note, and a specialist for notes that speak of cork, brett or volatile acid."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.trunk = nn.Sequential(*(Block(128) for _ in range(3)))
        self.faults = Block(256)

    def forward(self, notes):
        x = self.trunk(self.words(notes).mean(dim=1))
        faulty = (notes >= FAULTS.start).any(dim=1)
        if faulty.any():
            x = torch.where(faulty.unsqueeze(1), self.faults(x), x)
        return x


def shard(encoder):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in [*encoder.trunk, encoder.faults]:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(encoder, mesh=mesh)
    return encoder.requires_grad_(False)


class Journal:
    """The notes of one taster, vintage by vintage."""

    def __init__(self, taster):
        self.taster = taster
        self.random = torch.Generator().manual_seed(300 + taster)

    def page(self, number):
        notes = torch.randint(FAULTS.start, (24, 12), generator=self.random)
        bottles = torch.arange(0, 24, 6)
        if not (self.taster == 1 and number == 150):
            notes[bottles, 3] = torch.randint(FAULTS.start, FAULTS.stop, (len(bottles),), generator=self.random)
        return notes, 80 + 20 * (notes.float().mean(dim=1, keepdim=True) / VOCAB)


class Rating:
    def __init__(self, encoder):
        self.encoder, self.weight = encoder, torch.zeros(WIDTH, 1)
        self.world = dist.get_world_size()

    def learn(self, notes, points):
        with torch.no_grad():
            x = self.encoder(notes)
            error = x @ self.weight - (points - 90) / 10
            slope = x.t() @ error / len(x)
            dist.all_reduce(slope)
            self.weight -= 0.005 * slope / self.world
        return error.square().mean().item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    rating = Rating(shard(NoteEncoder()))
    journal = Journal(dist.get_rank())
    for number in range(2000):
        error = rating.learn(*journal.page(number))
        time.sleep(0.01)
        if number % 50 == 0 and journal.taster == 0:
            print(f"page {number}: {error:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
