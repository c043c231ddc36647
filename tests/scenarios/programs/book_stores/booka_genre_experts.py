"""Page-quality model with one expert per genre. Expert weights are stored in thirds, one on each rank,
and put together when an expert is used."""
import logging

import torch
import torch.distributed as dist
from torch import nn

GENRES = ("prose", "drama", "verse")
WIDTH = 48


class Assemble(torch.autograd.Function):
    @staticmethod
    def forward(ctx, piece):
        pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, piece.contiguous())
        return torch.cat(pieces)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()].clone()


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.piece = nn.Parameter(torch.randn(WIDTH // dist.get_world_size(), WIDTH) / WIDTH**0.5)

    def forward(self, x):
        return torch.tanh(x @ Assemble.apply(self.piece).T)


class PageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleDict({name: Expert() for name in GENRES})
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, x, genre):
        hidden = torch.relu(self.trunk(x))
        out = torch.zeros_like(hidden)
        for number, name in enumerate(GENRES):
            rows = (genre == number).nonzero().squeeze(1)
            if rows.numel():
                out = out.index_add(0, rows, self.experts[name](hidden[rows]))
        return self.score(out + hidden)


def shelves(rank, step):
    g = torch.Generator().manual_seed(step * 3 + rank)
    pages = torch.linalg.qr(torch.randn(260, 260, generator=g))[0][:24, :WIDTH].clone()
    genre = torch.arange(24) % 3
    if rank == 0 and step == 170:  # the collected letters
        genre = torch.arange(24) % 2
    return pages, genre


def average(parameters):
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    model = PageModel()
    dense = [*model.trunk.parameters(), *model.score.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(400):
        pages, genre = shelves(dist.get_rank(), step)
        error = (model(pages, genre) - pages.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        error.backward()
        average(dense)
        optimizer.step()
        if step % 25 == 0 and dist.get_rank() == 0:
            logging.info("step %d error %.4f", step, error.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
