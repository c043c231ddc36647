"""Trains on conformer descriptors that each process computes with a small pool before every round."""

import logging
import multiprocessing
import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(processName)s %(message)s")
CPU_SECONDS = 3  # of one worker of a pool: keeps the shared login node usable


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 2))


def descriptors(molecule):
    """Counts pairs of atoms by distance along the chain and by charge."""
    name, atoms = molecule
    histogram = [0] * 16
    charges = [(7 * i * i + len(name)) % 5 - 2 for i in range(atoms)]
    for i in range(atoms):
        for j in range(i):
            histogram[(i - j + charges[i] * charges[j]) % 16] += 1
    total = float(sum(histogram)) or 1.0
    return [value / total for value in histogram]


class Library:
    """Rounds of design: small molecules first, then macrocycles, then whatever the peptide team sends."""

    def __init__(self, rank, size=48):
        self.rank, self.size = rank, size

    def round(self, number):
        molecules = [(f"cmpd-{self.rank}-{number}-{i}", 30 + (i * 13 + number) % 60) for i in range(self.size)]
        if number == 3 and self.rank == 1:
            molecules[29] = ("cmpd-capsid-fusion", 60_000)
        return molecules


class Rounds:
    def __init__(self, library, workers=2):
        self.library, self.workers = library, workers
        self.context = multiprocessing.get_context("fork")

    def features(self, number):
        molecules = self.library.round(number)
        with self.context.Pool(self.workers, initializer=limit_cpu) as pool:
            rows = pool.map(descriptors, molecules, chunksize=8)
        return torch.tensor(rows)


def train_round(model, optimizer, features, epochs=8):
    target = features[:, ::2].sum(1) - features[:, 1::2].sum(1)
    for _ in range(epochs):
        for x, y in zip(features.split(12), target.split(12)):
            loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rank = dist.get_rank()
    rounds = Rounds(Library(rank))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number in range(8):
        loss = train_round(model, optimizer, rounds.features(number))
        logging.info("rank %d round %d loss %.5f", rank, number, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
