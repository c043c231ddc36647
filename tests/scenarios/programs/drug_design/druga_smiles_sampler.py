"""Scaffold decoration with a sharded token model (FSDP2): trains on a panel, then grows its scaffolds token by token."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TOKENS, START = 40, 6


class Panel(NamedTuple):
    target: str
    atoms: tuple  # heavy atoms wanted of each scaffold of this process


def panels(rank):
    yield Panel("kinase", (24, 30, 28))
    yield Panel("gpcr", (26, 22, 30))
    yield Panel("protease", (30, 30, 18))
    yield Panel("bromodomain", ((28, 31, 25), (14, 17, 12), (31, 20, 29))[rank % 3])
    yield Panel("ion channel", (30, 24, 26))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norm(x)
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = x + self.attend(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(x)


class TokenModel(nn.Module):
    def __init__(self, width=48, depth=2):
        super().__init__()
        self.embed, self.out = nn.Embedding(TOKENS, width), nn.Linear(width, TOKENS)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def train(model, optimizer, panel, steps, source):
    for _ in range(steps):
        tokens = torch.randint(TOKENS, (8, 24), generator=source)
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@torch.no_grad()
def grow(model, panel, source):
    """Adds tokens to each scaffold until the wanted number of heavy atoms is there."""
    wanted = torch.tensor(panel.atoms)
    tokens = torch.randint(TOKENS, (len(wanted), START), generator=source)
    atoms = torch.full_like(wanted, START)
    while bool((atoms < wanted).any()):
        probabilities = model(tokens)[:, -1].softmax(-1)
        drawn = torch.multinomial(probabilities, 1, generator=source)
        tokens = torch.cat([tokens, drawn], 1)
        atoms += 1
    return [row[:n].tolist() for row, n in zip(tokens, wanted.tolist())]


def novelty(molecules):
    return sum(len(set(m)) > len(m) // 2 for m in molecules)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(29)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = TokenModel()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    source = torch.Generator().manual_seed(rank)
    for panel in panels(rank):
        loss = train(model, optimizer, panel, 12, source)
        molecules = grow(model, panel, source)
        count = torch.tensor([novelty(molecules), len(molecules)])
        dist.all_reduce(count, group=mesh.get_group())
        if rank == 0:
            print(f"{panel.target}: loss {loss:.3f}, {int(count[0])} of {int(count[1])} novel", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
