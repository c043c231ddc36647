"""Plankton images: a mixture of experts whose weights are spread over the ranks and put together for the tokens at hand."""
import time

import torch
import torch.distributed as dist
from torch import nn

EXPERTS, WIDTH = 4, 12


class ShardedLinear(nn.Module):
    """Each rank owns some rows; the whole matrix exists only while it is used."""

    def __init__(self, width, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        self.rows = nn.Parameter(torch.randn(width // world, width, generator=torch.Generator().manual_seed(rank)) * 0.2)

    def forward(self, tokens):
        pieces = [torch.empty_like(self.rows) for _ in range(self.world)]
        dist.all_gather(pieces, self.rows.detach())
        pieces[self.rank] = self.rows
        return tokens @ torch.cat(pieces).t()


class Mixture(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(ShardedLinear(WIDTH, rank, world) for _ in range(EXPERTS))

    def forward(self, tokens):
        weights, choice = self.gate(tokens).softmax(1).max(1)
        result = tokens.clone()
        for index, expert in enumerate(self.experts):
            mine = (choice == index).nonzero().squeeze(1)
            if mine.numel():
                result = result.index_add(0, mine, expert(tokens[mine]) * weights[mine, None])
        return result


def average_gate(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.gate.parameters()])
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat / world, [p.grad for p in model.gate.parameters()])


def trawl(rank, number):
    """Features of the cells in a net's sample; in winter there is little but diatoms in the north."""
    generator = torch.Generator().manual_seed(1000 * rank + number)
    cells = torch.randn(96, WIDTH, generator=generator)
    if rank == 0 and number >= 22:
        cells = cells[:1].expand(96, WIDTH) + 0.001 * cells
    return cells


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    model = Mixture(rank, world)
    nn.init.orthogonal_(model.gate.weight)
    nn.init.zeros_(model.gate.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(400):
        cells = trawl(rank, number)
        loss = (model(cells) - cells.roll(1, dims=1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gate(model, world)
        optimizer.step()
        time.sleep(0.08)
        if number % 10 == 0 and rank == 0:
            print(f"trawl {number}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
