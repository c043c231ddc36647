"""Federated averaging over hospitals. In each round the hospitals that are selected average among themselves."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Hospital:
    """The private records of one client."""

    def __init__(self, rank):
        generator = torch.Generator().manual_seed(rank)
        self.x = torch.randn(160, 10, generator=generator)
        self.y = (self.x[:, :3].sum(1, keepdim=True) + 0.2 * rank > 0).float()

    def local_epochs(self, model, epochs=2, batch=16):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(epochs):
            for rows in torch.randperm(len(self.x)).split(batch):
                loss = nn.functional.binary_cross_entropy_with_logits(model(self.x[rows]), self.y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.01)
        return loss.item()


def plan(clients, rounds, seed=4):
    """Who takes part in which round: the same on each rank. The first rounds warm up with everybody."""
    rng = random.Random(seed)
    for number in range(rounds):
        if number < 3:
            yield number, list(range(clients))
        elif number < 6:
            absent = clients - 1 if number == 3 else number - 4
            yield number, [client for client in range(clients) if client != absent]
        else:
            yield number, sorted(rng.sample(range(clients), clients - 1))


class Cohorts:
    """The groups of the clients that have worked together. Those who are not in one are not bothered with it."""

    def __init__(self):
        self.groups = {}

    def group(self, members):
        key = tuple(members)
        if key not in self.groups:
            self.groups[key] = dist.new_group(members, use_local_synchronization=True)
        return self.groups[key]

    def average(self, model, members):
        vector = nn.utils.parameters_to_vector(model.parameters()).detach()
        dist.all_reduce(vector, group=self.group(members))
        nn.utils.vector_to_parameters(vector / len(members), model.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    hospital = Hospital(rank)
    cohorts = Cohorts()
    model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
    for number, members in plan(world, rounds=30):
        if rank not in members:
            print(f"round {number}: client {rank} sits out", flush=True)
            continue
        loss = hospital.local_epochs(model)
        cohorts.average(model, members)
        if rank == members[0]:
            print(f"round {number}: {len(members)} clients, loss {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
