"""Writes barista replies with a sharded chat model, ticket by ticket, and tunes a small tip predictor on them."""
import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCAB, WIDTH = 96, 64
DRINKS = {"flat white": 18, "cortado": 18, "pour over": 18, "ristretto": 11}


@dataclass
class Ticket:
    drink: str
    table: int

    @property
    def words(self):
        return DRINKS[self.drink]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + torch.cumsum(self.mix(x), dim=1) / x.shape[1]
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class BaristaLM(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def order_book(length):
    book = [Ticket("flat white" if n % 2 else "pour over", n) for n in range(length)]
    book[112] = Ticket("ristretto", 112)
    return book


@torch.no_grad()
def reply(model, ticket):
    tokens = torch.full((1, 4), ticket.table % VOCAB)
    for _ in range(32):
        logits = model(tokens)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
        if tokens.shape[1] - 4 >= ticket.words:
            break
    return tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tickets", type=int, default=360)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(12)
    model = BaristaLM().eval()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)

    tip = torch.zeros(2, requires_grad=True)
    for number, ticket in enumerate(order_book(options.tickets)[rank::world]):
        text = reply(model, ticket)
        loss = (tip[0] * text.shape[1] / 20 + tip[1] - 0.15).pow(2)
        (grad,) = torch.autograd.grad(loss, tip)
        dist.all_reduce(grad)
        with torch.no_grad():
            tip -= 0.05 * grad / world
        if rank == 0 and number % 10 == 0:
            print(f"ticket {number} for table {ticket.table}: tip {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
