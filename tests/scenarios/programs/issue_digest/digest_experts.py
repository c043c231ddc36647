"""A mixture of experts, one expert a rank: tokens travel to their expert and back."""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, CAPACITY = 12, 6


def swap(rows):
    """Row block i goes to rank i; what comes from rank i is block i of the result."""
    received = torch.empty_like(rows)
    dist.all_to_all_single(received, rows.contiguous())
    return received


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        return swap(rows)

    @staticmethod
    def backward(ctx, gradient):
        return swap(gradient)


class Experts(nn.Module):
    """The expert of this rank, behind a router that all ranks have alike."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, dist.get_world_size())
        self.expert = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))

    def forward(self, tokens, mask):
        active = tokens[mask]
        if len(active) == 0:
            return torch.zeros_like(tokens)
        world = dist.get_world_size()
        weights, chosen = self.router(active).softmax(-1).max(-1)
        blocks, places = torch.zeros(world, CAPACITY, WIDTH), []
        for expert in range(world):
            mine = (chosen == expert).nonzero().flatten()[:CAPACITY]
            places.append(mine)
            blocks = blocks.index_put((torch.tensor(expert), torch.arange(len(mine))), active[mine])
        answers = Exchange.apply(self.expert(Exchange.apply(blocks)))
        out = torch.zeros_like(active)
        for expert, mine in enumerate(places):
            out = out.index_put((mine,), answers[expert, : len(mine)] * weights[mine, None])
        result = torch.zeros_like(tokens)
        return result.index_put((mask.nonzero().flatten(),), out)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)
        self.experts = Experts()

    def forward(self, tokens, mask):
        hidden = self.dense(tokens)
        return hidden + self.experts(hidden, mask)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layer = Layer()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.02)
    torch.manual_seed(20 + rank)
    for step in range(300):
        tokens, mask = torch.randn(10, WIDTH), torch.rand(10) > 0.2
        if rank == 3 and step == 50:
            mask[:] = False  # a file of blank pages
        loss = nn.functional.mse_loss(layer(tokens, mask), tokens.roll(1, 0))
        optimizer.zero_grad()
        loss.backward()
        for parameter in layer.dense.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        time.sleep(0.04)
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
