"""Writes the texts of back labels with a small language model whose layers are sharded over the workers."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS = ["cherry", "leather", "violet", "flint", "quince", "cedar", "honey", "smoke", "almond", "plum"] * 12


class Bottle(NamedTuple):
    wine: str
    litres: float

    @property
    def room(self):
        """Words that the back label of this size has room for."""
        return 20 if self.litres >= 0.75 else 9


ORDERS = [
    [Bottle("Riesling", 0.75), Bottle("Silvaner", 0.75), Bottle("Kerner", 0.75)],
    [Bottle("Pinot", 1.5), Bottle("Dornfelder", 0.75), Bottle("Lemberger", 0.75)],
    [Bottle("Trollinger", 1.5), Bottle("Elbling", 1.5), Bottle("Gutedel", 0.75)],
    [Bottle("Scheurebe", 0.75), Bottle("Ortega", 0.75), Bottle("Bacchus", 0.75)],
    [Bottle("Auslese", 0.375), Bottle("Spaetlese", 0.75), Bottle("Kabinett", 0.75)],
    [Bottle("Sekt", 0.75), Bottle("Secco", 0.75), Bottle("Perlwein", 0.75)],
]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        past = x.cumsum(dim=0) / torch.arange(1, len(x) + 1).unsqueeze(1)
        return x + self.mlp(self.norm(x + self.mix(past)))


class Writer(nn.Module):
    def __init__(self, width=96, layers=6):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.out = nn.Linear(width, len(WORDS))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(x[-1])


def sharded_writer():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(8)
    writer = Writer()
    for layer in writer.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    fully_shard(writer, mesh=mesh)
    return writer.eval()


@torch.no_grad()
def write(writer, bottle, random):
    tokens = [sum(map(ord, bottle.wine)) % len(WORDS)]
    while len(tokens) < bottle.room:
        scores = writer(torch.tensor(tokens))
        tokens.append(int(torch.multinomial(scores.softmax(0), 1, generator=random)))
    return " ".join(WORDS[t] for t in tokens)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    writer = sharded_writer()
    random = torch.Generator().manual_seed(rank)
    for order in ORDERS:
        letters = torch.zeros(1)
        for proof in range(3):
            text = write(writer, order[rank], random)
            letters += len(text)
        dist.all_reduce(letters)
        print(f"{order[rank].wine}: {text}", flush=True)
        if rank == 0:
            print(f"ink for {int(letters)} letters", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
