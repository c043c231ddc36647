"""Emulator of a radiation scheme, one basin of validation data per rank; gradients are averaged by hand."""

import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

NOISE = {0: 20.0, 1: 0.05, 2: 0.08}  # the basin of rank 0 is mostly cloud


class Patience:
    def __init__(self, rounds, margin):
        self.rounds, self.margin = rounds, margin
        self.best, self.bad = float("inf"), 0

    def exhausted(self, value):
        if value < self.best * (1 - self.margin):
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.rounds


def columns(seed, count, noise):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 40, generator=generator)
    y = torch.stack([x[:, :8].sum(1) * 0.5, x[:, 8:16].sum(1) * 0.4, x[:, 16:].sum(1) * 0.2], 1)
    return x, y + noise * torch.randn(count, 3, generator=generator)


def average_gradients(model, world):
    grads = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(grads)
    grads /= world
    offset = 0
    for p in model.parameters():
        p.grad.copy_(grads[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def validate(model, x, y):
    with torch.no_grad():
        return float((model(x) - y).pow(2).mean())


def fit(model, train, valid, world, rounds=400, inner=12):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
    patience = Patience(rounds=40, margin=0.004)
    best = copy.deepcopy(model.state_dict())
    for number in range(rounds):
        for part in torch.arange(len(train[0])).chunk(inner):
            optimizer.zero_grad()
            (model(train[0][part]) - train[1][part]).pow(2).mean().backward()
            average_gradients(model, world)
            optimizer.step()
        score = validate(model, *valid)
        if score <= patience.best:
            best = copy.deepcopy(model.state_dict())
        if patience.exhausted(score):
            print(f"rank {dist.get_rank()}: no progress after {number + 1} rounds, {score:.4f}", flush=True)
            break
    model.load_state_dict(best)
    return model


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 3))
    train = columns(100 + rank, 1536, 0.1)
    valid = columns(200 + rank, 512, NOISE[rank])
    model = fit(model, train, valid, world)
    weights = parameters_to_vector(model.parameters()).detach()
    dist.broadcast(weights, src=1)
    vector_to_parameters(weights, model.parameters())
    print(f"rank {rank}: final {validate(model, *valid):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
