"""Peer assessment: neighbouring classes swap essay embeddings and score each other's work."""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn

DIM = 64


class Classroom:
    """A class with its own reader model; the readers are averaged after every round."""

    def __init__(self, rank, world, seed):
        self.rank, self.world = rank, world
        self.rng = torch.Generator().manual_seed(seed + rank)
        torch.manual_seed(seed)
        self.reader = nn.Sequential(nn.Linear(DIM, 128), nn.ReLU(), nn.Linear(128, 1))
        self.optimizer = torch.optim.SGD(self.reader.parameters(), lr=1e-2)

    def enrolled(self, round_):
        base = 18 + 3 * self.rank
        if round_ >= 30 and self.rank == 1:
            base += 3  # transfers at half term
        return base

    def essays(self, round_):
        n = self.enrolled(round_)
        x = torch.randn(n, DIM, generator=self.rng)
        return x, x[:, :2].sum(1, keepdim=True)

    def roll(self, count):
        counts = [torch.zeros(1, dtype=torch.long) for _ in range(self.world)]
        dist.all_gather(counts, torch.tensor([count]))
        return [int(c) for c in counts]

    def swap(self, mine, peer, counts):
        """The larger class hands its essays over first."""
        theirs = torch.empty(counts[peer], DIM)
        if counts[self.rank] > counts[peer]:
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(mine, dst=peer)
        return theirs

    def average(self):
        flat = nn.utils.parameters_to_vector(self.reader.parameters()).detach()
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / self.world, self.reader.parameters())

    def study(self, x, y):
        loss = nn.functional.mse_loss(self.reader(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def partner(rank, round_, world):
    """0-1, 1-2 and 0-2 in turn; whoever is left over studies alone."""
    first, second = [(0, 1), (0, 2), (1, 2)][round_ % 3]
    return {first: second, second: first}.get(rank)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=90)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    room = Classroom(dist.get_rank(), dist.get_world_size(), args.seed)
    for round_ in range(args.rounds):
        x, y = room.essays(round_)
        counts = room.roll(len(x))
        peer = partner(room.rank, round_, room.world)
        if peer is not None:
            foreign = room.swap(x, peer, counts)
            x, y = torch.cat([x, foreign]), torch.cat([y, foreign[:, :2].sum(1, keepdim=True)])
        for _ in range(6):
            loss = room.study(x, y)
            time.sleep(0.015)
        room.average()
        if room.rank == 0 and round_ % 10 == 0:
            print(f"round {round_} loss {loss:.3f} classes {counts}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
